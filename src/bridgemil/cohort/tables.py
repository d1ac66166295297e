"""Small tables as text: participants, channels, events, manifests. Every value is a string, '' where it is missing."""

from __future__ import annotations

import csv
from pathlib import Path

from bridgemil.errors import BadData

MISSING = {"", "n/a", "nan"}  # BIDS writes n/a, some libraries nan; NA and none may be names


def read_table(path: Path, delimiter: str = "\t") -> tuple[list[str], list[dict[str, str]]]:
    """Column names and rows of a delimited text file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True)
            lines = [[value.strip() for value in line] for line in reader if any(value.strip() for value in line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadData(f"{path}: is no table in UTF-8 text ({error})") from None
    if not lines:
        return [], []
    header = lines[0]
    rows = [dict(zip(header, line + [""] * len(header), strict=False)) for line in lines[1:]]
    return header, [{k: "" if v.lower() in MISSING else v for k, v in row.items()} for row in rows]
