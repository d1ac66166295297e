"""Text files beside the signals: participants, manifests, and the BIDS side files of a recording.

Every value of a table is a string, '' where it is missing. A file that cannot be read as it is written is a problem
that names the file and the line; nothing in it is guessed.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bridgemil.cohort import channels
from bridgemil.cohort.formats import IRREGULAR, Unusable, finite, is_irregular
from bridgemil.errors import BadData, plain

MISSING = {"", "n/a", "nan"}  # BIDS writes n/a, some libraries nan; NA and none may be names
SEX, AGE = ("sex", "gender"), ("age", "ageyears", "age_years", "age(years)")  # columns, in small letters
# Columns that hold the diagnosis itself, in small letters.
LABELS = {"group", "label", "diagnosis", "class", "dx", "condition", "disease", "status", "category"}
MAX_BYTES = 200_000_000  # of a table or an eeg.json
NEW_SEGMENT = "new segment"  # BrainVision's mark where recording continued; also where it began
Rows = list[tuple[int, dict[str, str]]]  # each row with its line in the file, from 1


def is_missing(value: Any) -> bool:
    """Whether a value stands for a missing one in Python, numpy, pandas or a table: None, NaN, NA, n/a, ''."""
    return value is None or str(value).strip().lower() in MISSING | {"<na>", "nat"}


def natural_key(name: str) -> list[tuple[int, str]]:
    """A sort key that puts P2 before P10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def folded(name: str) -> str:
    """A column's name without its capitals and spaces."""
    return "".join(name.split()).lower()


def columns_named(wanted: str, columns: Sequence[str]) -> list[str]:
    """The columns that a name may mean: the one of that very name, or those that differ in capitals and spaces."""
    return [wanted] if wanted in columns else [name for name in columns if folded(name) == folded(wanted)]


def is_label(column: str, values: Sequence[Any], labels: Sequence[str]) -> bool:
    """Whether a column states the diagnosis: by the classes' names, or in other words under a name of ``LABELS``."""
    pairs = {(str(value), label) for value, label in zip(values, labels, strict=True)}
    n_values, n_labels = len({value for value, _ in pairs}), len(set(labels))
    # Classes may have been merged (A and F to dementia): a class may have several values, a value only one class.
    determines = len(pairs) == n_values <= max(2 * n_labels, len(labels) / 4)
    same_words = all(value.lower() == label.lower() for value, label in pairs)
    return same_words or (determines and column.lower() in LABELS)


def read_table(path: Path, delimiter: str | None = "\t", used: Collection[str] = ()) -> tuple[list[str], Rows]:
    """The columns and the numbered rows of a delimited text file (UTF-8), as it is written; '' is a missing value.

    ``BadData`` names the line of a row with more cells than columns, or with a line break in a cell. With the tab of
    BIDS a cell ends there whatever quotation marks there are; with None, whichever of comma, semicolon and tab the
    header has most of separates cells, and a quoted cell may hold it. A control character or an invisible mark is
    refused in the columns that are ``used``, whose capitals and spaces do not matter; elsewhere its code is shown.
    """
    lines, wanted = _lines(path, delimiter), {folded(name) for name in used}
    if not lines:
        return [], []

    def safe(value: str, line: int, column: str) -> str:
        if plain(value) != value and folded(column) in wanted:
            raise BadData(f"{path}, line {line}: holds a control character or an invisible mark; take it out")
        return plain(value)

    first, names = lines[0]
    # An invisible mark must not hide a column that is used.
    columns = [safe(name, first, "".join(sign for sign in name if plain(sign) == sign)) for name in names]
    while columns and not columns[-1]:  # a separator at the end of the header
        columns.pop()
    if twice := [name for name, count in Counter(columns).items() if count > 1]:
        raise BadData(f"{path}, line {first}: has the column {twice[0]!r} more than once")
    rows = []
    for number, cells in lines[1:]:
        if any(cells[len(columns) :]):
            raise BadData(f"{path}, line {number}: has {len(cells)} cells, there are {len(columns)} columns")
        row = {name: safe(value, number, name) for name, value in itertools.zip_longest(columns, cells, fillvalue="")}
        rows.append((number, {name: "" if row[name].lower() in MISSING else row[name] for name in columns}))
    return columns, rows


def _lines(path: Path, delimiter: str | None) -> list[tuple[int, list[str]]]:
    """The cells of each line that has any, with the line's number."""
    try:
        text = _text(path)
    except Unusable as error:
        raise BadData(f"{path}: {error}") from None
    dialect: dict[str, Any] = {"quoting": csv.QUOTE_NONE}
    if delimiter is None:
        header = next((line for line in text.splitlines() if line.strip()), "")
        delimiter, dialect = max(",;\t", key=header.count), {"strict": True}
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, **dialect)
    lines, start = [], 1
    try:
        for cells in reader:
            values = [value.strip() for value in cells]
            if any("\n" in value or "\r" in value for value in values):
                raise BadData(f"{path}, line {start}: a cell continues on the next line; is a quotation mark missing?")
            if any(values):
                lines.append((start, values if "strict" in dialect else [_unquoted(value) for value in values]))
            start = reader.line_num + 1
    except csv.Error:
        why = "a quotation mark is missing or out of place, or a cell is too long"
        raise BadData(f"{path}, line {start}: is no row of a table: {why}") from None
    return lines


def _text(path: Path) -> str:
    """The content of a text file; ``Unusable`` if there is none, or too much."""
    if is_irregular(path):
        raise Unusable(IRREGULAR)
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise Unusable(f"is too large for a table or a side file ({size / 1e6:,.0f} MB)")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unusable("is no text in UTF-8") from None
    except OSError as error:
        raise Unusable(f"cannot be read ({error.strerror})") from None


def _unquoted(value: str) -> str:
    """A cell without the quotation marks around it, which some programs write although BIDS knows none."""
    inside = value[1:-1].replace('""', "")
    whole = len(value) > 1 and value[0] == value[-1] == '"' and '"' not in inside
    return value[1:-1].replace('""', '"').strip() if whole else value


def is_bad_mark(text: str) -> bool:
    """Whether an annotation says that the signal there is not to be trusted, or that there was a pause."""
    return text.strip().lower().startswith(("bad", "edge", "boundary", NEW_SEGMENT))


def is_boundary(text: str) -> bool:
    """Whether a bad mark is the point where something is not there; a duration would be that of what is gone."""
    return "boundary" in text.lower() or text.strip().lower().startswith(NEW_SEGMENT)


def marked_events(path: Path | None) -> list[tuple[float, float, str]]:
    """Onset, duration (in seconds) and mark of the stretches that an events.tsv marks as bad; n/a is duration 0."""
    marks = []
    for place, event in _rows(path, "onset", ("duration", "trial_type", "value")):
        texts = [text for text in (event.get("trial_type", ""), event.get("value", "")) if is_bad_mark(text)]
        if not texts:
            continue
        onset, duration = finite(event["onset"]), finite(event.get("duration") or "0")
        if duration is not None and duration < 0 and not is_boundary(texts[0]):  # a boundary's duration is not used
            duration = None
        if onset is None or duration is None:
            column, more = ("onset", "") if onset is None else ("duration", ", 0 or more, or n/a")
            raise Unusable(f"{place}: marks a bad stretch, and its {column} is not a number of seconds{more}")
        marks.append((onset, duration, texts[0]))
    return marks


def sidecar_channels(path: Path | None, keys: Mapping[str, str]) -> tuple[dict[str, str], set[str]]:
    """Types in capitals by channel (see ``channels.key``), and the channels marked bad, from a channels.tsv.

    ``keys`` has the channel of each name in the recording.
    """
    rows = [row for _, row in _rows(path, "name", ("type", "status"))]
    named = [(keys.get(row["name"]) or channels.key(row["name"]), row) for row in rows]
    types = {channel: row["type"].upper() for channel, row in named if row.get("type")}
    return types, {channel for channel, row in named if row.get("status", "").lower() == "bad"}


def _rows(path: Path | None, needed: str, used: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    """The rows of a side file that must have the column ``needed``, each with its place; ``used`` are read too."""
    if path is None:
        return []
    name = plain(path.name)
    try:
        columns, rows = read_table(path, used=(needed, *used))
    except BadData as error:
        raise Unusable(f"{name}{str(error).removeprefix(plain(str(path)))}") from None
    if columns and needed not in columns:
        raise Unusable(f"{name}: has no column {needed}; are its columns separated by tabs?")
    return [(f"{name}, line {line}", row) for line, row in rows]


def read_json(path: Path | None) -> dict[str, Any]:
    """The content of an eeg.json; empty if there is none."""
    if path is None:
        return {}
    try:
        content = json.loads(_text(path))
    except (Unusable, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, Unusable) else "is no JSON"
        raise Unusable(f"{plain(path.name)}: {why}") from None
    if not isinstance(content, dict):
        raise Unusable(f"{plain(path.name)}: is no JSON object ({{...}})")
    return content


CONTROL_NAMES = frozenset(  # compared without capitals; _ and - are spaces
    "control controls healthy normal hc cn nc ctrl ctl con c h n hv hs td nt cu norm comparison unaffected "
    "neurotypical negative neg no 0".split()
) | {"healthy control", "healthy controls", "healthy volunteer", "healthy subject", "cognitively normal",
     "cognitively unimpaired", "normal control", "normal controls", "typically developing"}  # fmt: skip


def control_classes(classes: Sequence[str]) -> list[str]:
    """The classes whose names are known for control subjects: ``HC``, ``healthy``, ``control``, …"""
    return [name for name in classes if " ".join(re.split(r"[\s_-]+", name.casefold())).strip() in CONTROL_NAMES]
