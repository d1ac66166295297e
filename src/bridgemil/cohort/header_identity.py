"""Whose a recording is and when it was made, as far as its header says so, in a form that tells neither.

A cohort keeps numbers only: which recordings name the same person ("identity 3"), and how many days after the earliest
one each was made. No name, code, date, or hash of one is written anywhere, so nothing can be scans up or tried out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.cohort.headers import EDF

if TYPE_CHECKING:
    from mne.io import BaseRaw

    from bridgemil.cohort.scan import RecordingScan

# What stands in a header that names nobody.
FILLERS = set(
    "x xx xxx xxxx unknown anonymous anonymized anonymised anonym anonymize anonymise mne_anonymize anon deidentified "
    "removed redacted hidden n/a na nan none null nil no name noname code id patient subject subj test dummy default "
    "undefined startdate".split()
)
SEX = {"m", "f", "male", "female"}
# Days that programs write where they know none, or were told to hide it.
NO_DAYS = {date(1985, 1, 1), date(1970, 1, 1), date(1900, 1, 1), date(1901, 1, 1), date(1999, 1, 1), date(2000, 1, 1)}
LEAST_CODE = 6  # characters
DAY = re.compile(r"\d{1,2}[-./][a-z]{3}[-./]\d{2,4}|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}")


def identity_hash(path: Path, raw: BaseRaw) -> str | None:
    """A hash of what the header says of the person, to compare recordings by; it stays in memory.

    Parameters
    ----------
    path
        The recording. Of EDF and BDF the whole field of the patient is read.
    raw
        The same, opened: of other formats, what the reader found of the person.

    Returns
    -------
    str or None
        None where the header names nobody: it is empty, holds fillers ("X X X X"), no more than sex and birthday, or a
        short code without a birthday ("S1"), which two groups of people may both have used.
    """
    if path.suffix.lower() in EDF:
        with path.open("rb") as stream:
            text = stream.read(88)[8:].decode("latin-1")
    else:
        person = raw.info["subject_info"] or {}
        parts = [person.get(key) for key in ("his_id", "last_name", "first_name", "middle_name", "birthday")]
        text = " ".join("-".join(map(str, p)) if isinstance(p, tuple) else str(p) for p in parts if p is not None)
    words = [word for word in re.split(r"[\s\0]+", text.casefold()) if not _says_nothing(word)]
    names = [word for word in words if not DAY.fullmatch(word) and word not in SEX]
    born = any(DAY.fullmatch(word) for word in words)
    if not names or (not born and len("".join(names)) < LEAST_CODE):
        return None
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def _says_nothing(word: str) -> bool:
    bare = word.strip("_-.,;:()[]*?/")
    return not bare or bare in FILLERS or not bare.strip("0x") or set(re.split("[_^.-]", bare)) <= FILLERS


def recording_day(raw: BaseRaw) -> int | None:
    """The day a recording began, counted as ``datetime.date`` does; None where the header does not say it.

    Parameters
    ----------
    raw
        The opened recording.
    """
    begun = raw.info["meas_date"]
    if not isinstance(begun, datetime) or begun.date() in NO_DAYS:
        return None
    return begun.date().toordinal()


def header_records(scans: Sequence[RecordingScan]) -> dict[str, dict[str, Any]]:
    """What a cohort keeps of the headers of its recordings, by the recording's name.

    Parameters
    ----------
    scans
        The first looks at all recordings of the cohort.

    Returns
    -------
    dict
        Of each: ``n_channels`` in the file, before any was chosen; ``identity``, a number that recordings of one person
        share, and ``day``, whole days after the cohort's earliest recording; both None where the header is silent;
        ``reference``, where the channels' names say it.
    """
    numbers: dict[str, int] = {}
    days = [scan.day for scan in scans if scan.day is not None]
    records: dict[str, dict[str, Any]] = {}
    for scan in scans:
        number = None if scan.identity is None else numbers.setdefault(scan.identity, len(numbers) + 1)
        day = None if scan.day is None else scan.day - min(days)
        records[scan.recording.name] = {"n_channels": scan.n_channels, "identity": number, "day": day}
        if scan.reference:
            records[scan.recording.name]["reference"] = scan.reference
    return records


def with_headers(files: Sequence[Mapping[str, Any]], headers: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The records of a cohort's files, each with what is kept of its header.

    Parameters
    ----------
    files
        One a recording; ``file`` is its name.
    headers
        As ``header_records`` makes them, of all recordings at once: the numbers mean something together only.
    """
    return [{**file, **headers.get(str(file["file"]), {})} for file in files]
