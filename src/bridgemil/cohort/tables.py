"""Small tables as text: participants, channels, events, manifests. Every value is a string, '' where it is missing."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

from bridgemil.cohort.headers import is_irregular
from bridgemil.errors import BadData, plain

MISSING = {"", "n/a", "nan"}  # BIDS writes n/a, some libraries nan; NA and none may be names
MOST_BYTES = 200_000_000


def read_table(
    path: Path, delimiter: str | None = "\t", used: Collection[str] | None = None
) -> tuple[list[str], list[dict[str, str]]]:
    """Read a delimited text file.

    Parameters
    ----------
    path
        The file, in UTF-8.
    delimiter
        What separates the columns; None takes whichever of comma, semicolon and tab the header has most of. With the
        tab of BIDS a cell ends with it, whatever quotation marks there are; otherwise a quoted cell may hold it.
    used
        Columns whose values decide something (capitals and spaces in their names do not matter): a control character
        or an invisible mark in them is refused, elsewhere it is shown as its code. None refuses it in all.

    Returns
    -------
    columns
        Their names, in order.
    rows
        A dict a row, '' where a value is missing.
    """
    columns, rows = numbered_rows(path, delimiter, used)
    return columns, [row for _, row in rows]


def numbered_rows(
    path: Path, delimiter: str | None = "\t", used: Collection[str] | None = None
) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Read a delimited text file as it is written, or refuse it: each row with its line in the file, from 1.

    Parameters
    ----------
    path, delimiter, used
        As for ``read_table``.

    Raises
    ------
    BadData
        Names the file, and the line of a row with more cells than there are columns, with a line break in a cell, or
        with a control character in a column that is used.
    """
    lines = _lines(path, delimiter)
    if not lines:
        return [], []
    wanted = None if used is None else {folded(name) for name in used}
    columns = []
    for name in lines[0][1]:
        visible = folded("".join(sign for sign in name if plain(sign) == sign))  # an invisible mark must not hide one
        columns.append(_safe(name, path, lines[0][0], strict=wanted is None or visible in wanted))
    while columns and not columns[-1]:  # a separator at the end of the header
        columns.pop()
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise BadData(f"{path}, line {lines[0][0]}: has the column {twice[0]!r} more than once")
    rows = []
    for number, line in lines[1:]:
        if any(line[len(columns) :]):
            raise BadData(f"{path}, line {number}: has {len(line)} cells, there are {len(columns)} columns")
        row = {}
        for name, value in zip(columns, line + [""] * len(columns), strict=False):
            safe = _safe(value, path, number, strict=wanted is None or folded(name) in wanted)
            row[name] = "" if safe.lower() in MISSING else safe
        rows.append((number, row))
    return columns, rows


def folded(name: str) -> str:
    """A column's name without its capitals and spaces."""
    return "".join(name.split()).lower()


def _safe(value: str, path: Path, line: int, *, strict: bool) -> str:
    safe = plain(value)
    if strict and safe != value:
        raise BadData(f"{path}, line {line}: holds a control character or an invisible mark; take it out")
    return safe


def _cells(path: Path, stream: IO[str], delimiter: str, **dialect: Any) -> list[tuple[int, list[str]]]:
    reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True, **dialect)
    lines, start = [], 1
    try:
        for cells in reader:
            values = [value.strip() for value in cells]
            if any("\n" in value or "\r" in value for value in values):
                raise BadData(f"{path}, line {start}: a cell goes on in the next line; is a quotation mark missing?")
            if any(values):
                lines.append((start, values))
            start = reader.line_num + 1
    except csv.Error:
        raise BadData(
            f"{path}, line {start}: is no row of a table: a quotation mark is missing or out of place, or a cell is "
            "too long"
        ) from None
    return lines


def _unquoted(value: str) -> str:
    """A cell without the quotation marks around it, which some programs write although BIDS knows none."""
    inside = value[1:-1].replace('""', "")
    whole = len(value) > 1 and value[0] == value[-1] == '"' and '"' not in inside
    return value[1:-1].replace('""', '"').strip() if whole else value


def _lines(path: Path, delimiter: str | None) -> list[tuple[int, list[str]]]:
    """The cells of each line that has any, with the line's number."""
    if is_irregular(path):
        raise BadData(f"{path}: is no regular file but a pipe, a device or a socket")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadData(f"{path}: is too large for a table ({path.stat().st_size / 1e6:,.0f} MB)")
        with path.open(encoding="utf-8-sig", newline="") as stream:
            if delimiter is None:
                header = next((line for line in stream if line.strip()), "")
                delimiter = max(",;\t", key=header.count)
                stream.seek(0)
                return _cells(path, stream, delimiter, strict=True)
            lines = _cells(path, stream, delimiter, quoting=csv.QUOTE_NONE)
            return [(line, [_unquoted(value) for value in cells]) for line, cells in lines]
    except UnicodeDecodeError:
        raise BadData(f"{path}: is no table in UTF-8 text") from None
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror})") from None
