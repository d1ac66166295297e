"""Small tables as text: participants, channels, events, manifests. Every value is a string, '' where it is missing."""

from __future__ import annotations

import csv
from pathlib import Path

from bridgemil.errors import BadData

MISSING = {"", "n/a", "nan"}  # BIDS writes n/a, some libraries nan; NA and none may be names


def read_table(path: Path, delimiter: str | None = "\t") -> tuple[list[str], list[dict[str, str]]]:
    """Read a delimited text file.

    Parameters
    ----------
    path
        The file, in UTF-8.
    delimiter
        What separates the columns; None takes whichever of comma, semicolon and tab the header has most of.

    Returns
    -------
    columns
        Their names, in order.
    rows
        A dict a row, '' where a value is missing.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            if delimiter is None:
                header = next((line for line in stream if line.strip()), "")
                delimiter = max(",;\t", key=header.count)
                stream.seek(0)
            reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True)
            lines = [[value.strip() for value in line] for line in reader if any(value.strip() for value in line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadData(f"{path}: is no table in UTF-8 text ({error})") from None
    if not lines:
        return [], []
    columns = lines[0]
    rows = [dict(zip(columns, line + [""] * len(columns), strict=False)) for line in lines[1:]]
    return columns, [{k: "" if v.lower() in MISSING else v for k, v in row.items()} for row in rows]
