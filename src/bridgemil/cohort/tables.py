"""Small tables as text: participants, channels, events, manifests. Every value is a string, '' where it is missing."""

from __future__ import annotations

import csv
from pathlib import Path

MISSING = {"", "n/a", "na", "nan", "none", "null"}


def read_table(path: Path, delimiter: str = "\t") -> tuple[list[str], list[dict[str, str]]]:
    """Column names and rows of a delimited text file."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True)
        lines = [[value.strip() for value in line] for line in reader if any(value.strip() for value in line)]
    if not lines:
        return [], []
    header = lines[0]
    rows = [dict(zip(header, line + [""] * len(header), strict=False)) for line in lines[1:]]
    return header, [{k: "" if v.lower() in MISSING else v for k, v in row.items()} for row in rows]
