"""BIDS side files of a recording: what its channels are, which stretches are marked, how long it is.

One that cannot be read as it is written is a problem that names the file and the line; nothing in it is guessed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from bridgemil.cohort import channels
from bridgemil.cohort.headers import is_irregular
from bridgemil.cohort.tables import MISSING, numbered_rows
from bridgemil.errors import BadData, plain

NEW_SEGMENT = "new segment"  # BrainVision's word for where recording went on; also for where it began
MOST_BYTES = 10_000_000  # of an eeg.json


class BadSideFile(Exception):
    """Why a side file cannot be used; the recording itself may be good."""


def is_bad_mark(text: str) -> bool:
    """Whether an annotation says that the signal there is not to be trusted, or that there was a pause."""
    return text.strip().lower().startswith(("bad", "edge", "boundary", NEW_SEGMENT))


def is_boundary(text: str) -> bool:
    """Whether a bad mark is the point where something is not there; a duration would be that of what is gone."""
    return "boundary" in text.lower() or text.strip().lower().startswith(NEW_SEGMENT)


def marked_events(path: Path | None) -> list[tuple[float, float, str]]:
    """The stretches that an events.tsv marks as bad.

    Parameters
    ----------
    path
        The side file, if there is one.

    Returns
    -------
    list of (onset, duration, mark)
        In seconds; a mark without a duration (n/a) is a point.
    """
    marks = []
    for line, event in _rows(path, "onset", ("duration", "trial_type", "value")):
        texts = [text for text in (event.get("trial_type", ""), event.get("value", "")) if is_bad_mark(text)]
        if texts:
            onset = _seconds(event["onset"], path, line, "onset", -math.inf)
            least = -math.inf if is_boundary(texts[0]) else 0.0  # a boundary's is not used
            duration = _seconds(event.get("duration") or "0", path, line, "duration", least)
            marks.append((onset, duration, texts[0]))
    return marks


def _seconds(text: str, path: Path | None, line: int, column: str, least: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < least:
        wanted = "a number of seconds" if least < 0 else "a number of seconds, 0 or more, or n/a"
        raise BadSideFile(f"{_name(path)}, line {line}: marks a bad stretch, and its {column} is not {wanted}")
    return value


def sidecar_channels(path: Path | None) -> tuple[dict[str, str], set[str]]:
    """Types, and bad channels, from a channels.tsv.

    Parameters
    ----------
    path
        The side file, if there is one.

    Returns
    -------
    types, bad
        Channel (see ``channels.key``) to type in capitals; channels marked bad.
    """
    rows = [row for _, row in _rows(path, "name", ("type", "status"))]
    types = {channels.key(row["name"]): row["type"].upper() for row in rows if row.get("type")}
    return types, {channels.key(row["name"]) for row in rows if row.get("status", "").lower() == "bad"}


def _rows(path: Path | None, needed: str, used: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """The numbered rows of a side file that must have the column ``needed``; ``used`` are read too."""
    if path is None:
        return []
    try:
        columns, rows = numbered_rows(path, used=(needed, *used))
    except BadData as error:
        raise BadSideFile(f"{_name(path)}{str(error).removeprefix(plain(str(path)))}") from None
    if columns and needed not in columns:
        raise BadSideFile(f"{_name(path)}: has no column {needed}; are its columns separated by tabs?")
    return rows


def read_json(path: Path | None) -> dict[str, Any]:
    """The content of an eeg.json; nothing if there is none.

    Parameters
    ----------
    path
        The side file, if there is one.
    """
    if path is None:
        return {}
    if is_irregular(path):
        raise BadSideFile(f"{_name(path)}: is no regular file but a pipe, a device or a socket")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadSideFile(f"{_name(path)}: is too large for a side file")
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError):
        raise BadSideFile(f"{_name(path)}: is no JSON in UTF-8 text") from None
    except OSError as error:
        raise BadSideFile(f"{_name(path)}: cannot be read ({error.strerror})") from None
    if not isinstance(content, dict):
        raise BadSideFile(f"{_name(path)}: is no JSON object ({{...}})")
    return content


def stated_seconds(path: Path | None) -> float:
    """How long a recording is by its eeg.json (RecordingDuration); 0 if that does not say.

    Parameters
    ----------
    path
        The side file, if there is one.
    """
    stated = read_json(path).get("RecordingDuration")
    if stated is None or (isinstance(stated, str) and stated.strip().lower() in MISSING):
        return 0.0
    try:
        seconds = math.nan if isinstance(stated, bool) else float(stated)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise BadSideFile(f"{_name(path)}: RecordingDuration is not a number of seconds")
    return seconds


def _name(path: Path | None) -> str:
    return plain(path.name) if path is not None else ""
