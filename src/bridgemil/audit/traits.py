"""Traits of each subject beside the EEG on which a diagnosis should be based: length, amplitude, order, age, site."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.findings import AuditInput
from bridgemil.audit.fold_membership import related_columns
from bridgemil.audit.measures import held_lines
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.tables import is_label, is_missing, natural_key

# Columns of the recording conditions.
TECHNICAL = {
    "site", "centre", "center", "scanner", "device", "system", "amplifier", "cap", "room", "operator", "technician",
    "manufacturer", "model", "hospital", "sampling_rate", "sampling_frequency", "reference", "batch",
}  # fmt: skip
OF_SUBJECTS = ("birth", "dob", "onset", "diagnos")  # in the names of dates that are not those of a recording
MOST_CODES = 8  # different whole numbers of a column that may be names: 1 and 3 for two sites
MOST_VALUES = 0.25  # different words of a column, as a share of the subjects; more do not generalise


@dataclass(frozen=True)
class Trait:
    """One number or word of each of n subjects."""

    name: str  # as the finding is called: ``length``
    description: str
    values: NDArray[np.float64]  # n; for words, codes
    is_number: bool = True  # whether the order has a meaning
    technical: bool = False  # whether it cannot be biology: a label that follows from it is no diagnosis
    is_code: bool = False  # whether the numbers may be names: both are tested, and the better one is reported
    names: tuple[str, ...] = ()  # of the different values in their order: the words, or of codes the numbers


@dataclass
class Traits:
    """The traits of a cohort: those that can be tested, and why others cannot."""

    tested: list[Trait] = field(default_factory=list)
    untested: list[tuple[str, str]] = field(default_factory=list)  # name and reason
    constant: list[str] = field(default_factory=list)  # names of those that are the same for all subjects

    def number(
        self, name: str, description: str, values: Any, technical: bool = False, is_code: bool = False,
        missing: float | None = None,
    ) -> None:  # fmt: skip
        """Add a number of each subject; with ``is_code`` it may also be a name. ``missing`` stands for no value."""
        numbers = np.asarray(values, dtype=np.float64)
        if len(np.unique(np.round(numbers, 12))) < 2:
            self.constant.append(name)
            return
        different = np.unique(numbers).tolist() if is_code else []
        names = tuple("missing" if value == missing else f"{value:g}" for value in different)
        self.tested.append(Trait(name, description, numbers, True, technical, is_code, names))

    def count(self, name: str, description: str, values: Sequence[float], technical: bool = False) -> None:
        """Add a number that may be a category where it has few values: 10 and 30 windows against 20."""
        self.number(name, description, values, technical, is_code=len(set(values)) <= MOST_CODES)

    def words(self, name: str, description: str, words: Sequence[str | None], technical: bool) -> None:
        """Add a word of each subject; a missing one is a word of its own."""
        present = [word for word in words if word is not None]
        different = sorted(set(present))
        if len(different) > max(2, MOST_VALUES * len(present)):
            self.untested.append((name, f"has {len(different)} different words, too many to test"))
        elif len(different) < 2:
            self.constant.append(name)
        else:
            codes = np.array([-1.0 if word is None else different.index(word) for word in words])
            names = (*(("missing",) if len(present) < len(words) else ()), *different)
            self.tested.append(Trait(name, description, codes, False, technical, names=names))


def traits(inputs: AuditInput) -> Traits:
    """All traits that the cohort's records, its signal and its columns give."""
    found = Traits()
    _of_recordings(found, inputs.cohort)
    _of_signal(found, inputs)
    _of_files(found, inputs.cohort)
    _of_columns(found, inputs)
    return found


def _of_recordings(found: Traits, cohort: Cohort) -> None:
    records = list(cohort.records.values())
    found.count("length", "number of windows", [r.n_windows for r in records], technical=True)
    found.count("recordings", "number of recordings", [len(r.recording_windows) for r in records], technical=True)
    names = {str(file.get("subject")): str(file.get("file")) for file in reversed(cohort.metadata.get("files") or [])}
    ordered = sorted(range(len(cohort)), key=lambda i: natural_key(names.get(cohort.subjects[i], cohort.subjects[i])))
    # Not technical: models do not see file names, and most data sets are numbered class by class.
    found.number("order", "place in the order of file names", np.argsort(ordered))


def _of_signal(found: Traits, inputs: AuditInput) -> None:
    measures, lines = [inputs.measures[subject] for subject in inputs.cohort.subjects], held_lines(inputs.cohort)
    found.number("amplitude", "log amplitude", [m.amplitude for m in measures])
    found.number("flatness", "share of flat windows and channels", [m.flat for m in measures])
    for line in lines:
        found.number(f"line_{line}", f"power at {line} Hz as a share", [m.line[line] for m in measures])
    if not lines:
        reason = "rate, low-pass or notch leave nothing at 50 and 60 Hz in the signal"
        found.untested.append(("line_noise", reason))


def _of_files(found: Traits, cohort: Cohort) -> None:
    files = defaultdict[str, list[Mapping[str, Any]]](list)
    for file in cohort.metadata.get("files") or []:
        files[str(file.get("subject"))].append(file)
    parts = [files[subject] for subject in cohort.subjects]
    if not all(parts):
        why = "the cohort was made from arrays and records no files"
        found.untested += [(name, why) for name in ("rate", "channels", "missing", "date")]
        return
    rates = [min(float(file["native_sfreq"]) for file in own) for own in parts]
    found.count("rate", "native rate", rates, technical=True)
    reasons = ("dropped_marked_bad", "dropped_amplitude")
    dropped = [sum(file.get(reason) or 0 for file in own for reason in reasons) for own in parts]
    found.number("missing", "number of windows left out", dropped, technical=True)
    # This and the days are not technical: models do not see what the windows do not hold.
    if all("n_channels" in file for own in parts for file in own):
        channels = [min(float(file["n_channels"]) for file in own) for own in parts]
        found.count("channels", "number of channels in the file", channels)
    # The recording reference, where channel names state it and nothing was re-referenced.
    if not cohort.metadata["settings"].get("reference") and any(file.get("reference") for own in parts for file in own):
        words = [" and ".join(sorted({str(file.get("reference") or "not stated") for file in own})) for own in parts]
        found.words("recording_reference", "reference in the channel names", words, technical=True)
    # Days after the cohort's earliest recording.
    days = [min((file["day"] for file in own if file.get("day") is not None), default=None) for own in parts]
    missing = [day is None for day in days]
    if all(missing):
        found.untested.append(("date", "no header states when it was recorded, or they are anonymised"))
        return
    middle = float(np.median([day for day in days if day is not None]))
    filled = [middle if day is None else float(day) for day in days]
    found.number("date", "day of recording, counted from the first,", filled)
    if any(missing):
        found.number("date_missing", "whether the header states when it was recorded", missing)


def _of_columns(found: Traits, inputs: AuditInput) -> None:
    cohort, related = inputs.cohort, set(related_columns(inputs))
    for column in map(str, cohort.table.columns):
        if column in ("subject", "label", "n_windows", "n_recordings"):
            continue
        values = [None if is_missing(value) else value for value in cohort.column(column)]
        if column in related:
            found.untested.append((column, "states which subjects belong together"))
        elif is_label(column, values, cohort.labels):
            found.untested.append((column, "is the label itself"))
        else:
            _column(found, column, values)


def _column(found: Traits, column: str, values: Sequence[Any]) -> None:
    missing, present = np.array([value is None for value in values]), [value for value in values if value is not None]
    if not present:
        found.untested.append((column, "is empty"))
        return
    technical, title = column.lower() in TECHNICAL, f"column {column!r}"
    if missing.any():
        found.number(f"{column}_missing", f"absence of {column!r}", missing)
    numbers = _parsed(float, present)
    given = numbers or _parsed(lambda date: datetime.fromisoformat(str(date)).toordinal(), present)
    if given is None:
        words = [None if value is None else str(value).strip() for value in values]
        found.words(column, title, words, technical)
        return
    different, is_code = set(given), False
    if numbers is None:  # a date is that of a recording, unless its name says another
        technical |= not any(part in column.lower() for part in OF_SUBJECTS)
    else:  # a few whole numbers may be codes, and then a missing one is a code of its own
        is_code = len(different) <= MOST_CODES and all(number % 1 == 0 for number in different)
        is_code |= technical and len(different) <= max(MOST_CODES, MOST_VALUES * len(given))
    middle = float(np.median(given))
    if is_code and middle in different:
        middle = float(np.nextafter(middle, np.inf))
    filled = np.full(len(values), middle)
    filled[~missing] = given
    found.number(column, title, filled, technical, is_code, missing=middle)


def _parsed(parse: Callable[[Any], float], values: Sequence[Any]) -> list[float] | None:
    """All values as finite numbers; None if one is not."""
    try:
        found = [parse(value) for value in values]
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found).all() else None
