"""Traits of each subject beside the EEG on which a diagnosis should be based: length, amplitude, order, age, site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.audit.fold_membership import related_columns
from bridgemil.audit.inputs import AuditInput
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.tables import is_missing, natural_key

# Columns that hold the diagnosis itself, and those of the recording conditions.
LABELS = {"group", "label", "diagnosis", "class", "dx", "condition", "disease", "status", "category"}
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


@dataclass(frozen=True)
class Untested:
    """A trait that could not be tested."""

    name: str
    reason: str
    constant: bool = False  # the same for all subjects


def traits(inputs: AuditInput) -> list[Trait | Untested]:
    """All traits that the cohort's records, its signal and its columns give."""
    return [*_of_recordings(inputs.cohort), *_of_signal(inputs), *_of_files(inputs.cohort), *_of_columns(inputs)]


def _trait(
    name: str, description: str, values: Sequence[float] | NDArray[Any], technical: bool = False
) -> Trait | Untested:
    numbers = np.asarray(values, dtype=np.float64)
    if len(np.unique(np.round(numbers, 12))) < 2:
        return Untested(name, f"{description} is the same for all subjects", constant=True)
    return Trait(name, description, numbers, technical=technical)


def _count(
    name: str, description: str, values: Sequence[float] | NDArray[Any], technical: bool = False
) -> Trait | Untested:
    """A number that is also tested as a category where it has few values: 10 and 30 windows against 20."""
    trait = _trait(name, description, values, technical)
    different = np.unique(np.asarray(values, dtype=np.float64))
    if isinstance(trait, Untested) or len(different) > MOST_CODES:
        return trait
    return replace(trait, is_code=True, names=tuple(f"{value:g}" for value in different))


def _of_recordings(cohort: Cohort) -> list[Trait | Untested]:
    records = list(cohort.records.values())
    return [
        _count("length", "number of windows", [r.n_windows for r in records], technical=True),
        _count("recordings", "number of recordings", [len(r.recording_windows) for r in records], technical=True),
        # Not technical: models do not see file names, and most data sets are numbered class by class.
        _trait("order", "place in the order of file names", _order(cohort)),
    ]


def _order(cohort: Cohort) -> NDArray[np.float64]:
    names: dict[str, str] = {}
    for file in cohort.metadata.get("files") or []:
        names.setdefault(str(file.get("subject")), str(file.get("file")))
    ordered = sorted(range(len(cohort)), key=lambda i: natural_key(names.get(cohort.subjects[i], cohort.subjects[i])))
    return np.argsort(ordered).astype(np.float64)


def _of_signal(inputs: AuditInput) -> list[Trait | Untested]:
    cohort, measures = inputs.cohort, inputs.measures.subjects
    found: list[Trait | Untested] = [
        _trait("amplitude", "log amplitude", [measures[s].amplitude for s in cohort.subjects]),
        _trait("flatness", "share of flat windows and channels", [measures[s].flat for s in cohort.subjects]),
    ]
    for line in inputs.measures.lines:
        values = [measures[s].line[line] for s in cohort.subjects]
        found.append(_trait(f"line_{line}", f"power at {line} Hz as a share", values))
    if not inputs.measures.lines:
        found.append(Untested("line_noise", "rate, low-pass or notch leave nothing at 50 and 60 Hz in the signal"))
    return found


def _of_files(cohort: Cohort) -> list[Trait | Untested]:
    files: dict[str, list[Mapping[str, Any]]] = {}
    for file in cohort.metadata.get("files") or []:
        files.setdefault(str(file.get("subject")), []).append(file)
    if not all(subject in files for subject in cohort.subjects):
        why = "the cohort was made from arrays and records no files"
        return [Untested(name, why) for name in ("rate", "channels", "missing", "date")]

    def each(value: Callable[[Mapping[str, Any]], Any], join: Callable[[list[float]], float]) -> list[float]:
        return [join([float(value(file)) for file in files[subject]]) for subject in cohort.subjects]

    found = [_count("rate", "native rate", each(lambda f: f["native_sfreq"], min), technical=True)]
    dropped = each(lambda f: (f.get("dropped_marked_bad") or 0) + (f.get("dropped_amplitude") or 0), sum)
    found.append(_trait("missing", "number of windows left out", dropped, technical=True))
    # This and the days are not technical: models do not see what the windows do not hold.
    if all("n_channels" in file for parts in files.values() for file in parts):
        found.append(_count("channels", "number of channels in the file", each(lambda f: f["n_channels"], min)))
    parts = [files[subject] for subject in cohort.subjects]
    return found + _of_references(cohort, parts) + _of_days(parts)


def _of_references(cohort: Cohort, files: Sequence[Sequence[Mapping[str, Any]]]) -> list[Trait | Untested]:
    """The recording reference of each subject, where channel names state it and nothing was re-referenced."""
    if cohort.metadata["settings"].get("reference") or not any(
        file.get("reference") for parts in files for file in parts
    ):
        return []
    words = [" and ".join(sorted({str(file.get("reference") or "not stated") for file in parts})) for parts in files]
    return _of_words("recording_reference", "reference in the channel names", words, technical=True)


def _of_days(files: Sequence[Sequence[Mapping[str, Any]]]) -> list[Trait | Untested]:
    """When each subject was recorded, in days after the cohort's earliest recording; whether the header states it."""
    days = [min((file["day"] for file in parts if file.get("day") is not None), default=None) for parts in files]
    missing = np.array([day is None for day in days])
    if missing.all():
        return [Untested("date", "no header states when it was recorded, or they are anonymised")]
    middle = float(np.median([day for day in days if day is not None]))
    filled = [middle if day is None else float(day) for day in days]
    found = [_trait("date", "day of recording, counted from the first,", filled)]
    if missing.any():
        description = "whether the header states when it was recorded"
        found.append(_trait("date_missing", description, missing.astype(float)))
    return found


def _of_columns(inputs: AuditInput) -> list[Trait | Untested]:
    cohort = inputs.cohort
    skipped = {"subject", "label", "n_windows", "n_recordings"}
    columns = [str(column) for column in cohort.table.columns if column not in skipped]
    related = set(related_columns(inputs))
    found: list[Trait | Untested] = []
    for column in columns:
        given = cohort.column(column)
        values = [None if is_missing(v) else v for v in given]
        if column in related:
            found.append(Untested(column, "states which subjects belong together"))
        elif _is_label(column, values, cohort.labels):
            found.append(Untested(column, "is the label itself"))
        else:
            found += _column(column, values)
    return found


def _is_label(column: str, values: Sequence[Any], labels: Sequence[str]) -> bool:
    """Whether a column states the diagnosis: by the classes' names, or in other words under a name of ``LABELS``."""
    pairs = {(str(value), label) for value, label in zip(values, labels, strict=True)}
    n_values, n_labels = len({value for value, _ in pairs}), len(set(labels))
    # Classes may have been merged (A and F to dementia): a class may have several values, a value only one class.
    determines = len(pairs) == n_values <= max(2 * n_labels, MOST_VALUES * len(labels))
    same_words = all(value.lower() == label.lower() for value, label in pairs)
    return same_words or (determines and column.lower() in LABELS)


def _column(column: str, values: Sequence[Any]) -> list[Trait | Untested]:
    missing = np.array([value is None for value in values])
    if missing.all():
        return [Untested(column, "is empty")]
    technical = column.lower() in TECHNICAL
    found: list[Trait | Untested] = []
    if missing.any():
        found.append(_trait(f"{column}_missing", f"whether {column!r} is missing", missing.astype(float)))
    present = [value for value in values if value is not None]
    numbers = _numbers(present)
    dates = _dates(present) if numbers is None else None
    if numbers is None and dates is None:
        words = [None if value is None else str(value).strip() for value in values]
        return [*found, *_of_words(column, f"column {column!r}", words, technical)]
    if numbers is not None:
        return [*found, _of_numbers(column, numbers, missing, technical)]
    filled = np.full(len(values), np.median(dates or [0.0]))
    filled[~missing] = dates
    of_recording = not any(part in column.lower() for part in OF_SUBJECTS)
    return [*found, _trait(column, f"column {column!r}", filled, technical=technical or of_recording)]


def _of_words(name: str, described: str, words: Sequence[str | None], technical: bool) -> list[Trait | Untested]:
    """A trait of words, one per subject; a missing one is a word of its own."""
    present = [word for word in words if word is not None]
    different = sorted(set(present))
    if len(different) > max(2, MOST_VALUES * len(present)):
        return [Untested(name, f"has {len(different)} different words, too many to test")]
    if len(different) < 2:
        return [Untested(name, "is the same for all subjects", constant=True)]
    codes = np.array([-1.0 if word is None else different.index(word) for word in words])
    names = (*(("missing",) if len(present) < len(words) else ()), *different)
    return [Trait(name, described, codes, False, technical, names=names)]


def _of_numbers(column: str, numbers: Sequence[float], missing: NDArray[np.bool_], technical: bool) -> Trait | Untested:
    """A column of numbers, which may be codes; a missing one gets the median, as a code of its own."""
    different = np.unique(numbers)
    few_wholes = len(different) <= MOST_CODES and bool((different % 1 == 0).all())
    is_code = few_wholes or (technical and len(different) <= max(MOST_CODES, MOST_VALUES * len(numbers)))
    middle = float(np.median(numbers))
    if is_code and middle in different:
        middle = float(np.nextafter(middle, np.inf))
    filled = np.full(len(missing), middle)
    filled[~missing] = numbers
    trait = _trait(column, f"column {column!r}", filled, technical=technical)
    if not is_code or isinstance(trait, Untested):
        return trait
    names = tuple(f"{value:g}" if value in different else "missing" for value in np.unique(filled))
    return replace(trait, is_code=True, names=names)


def _numbers(values: Sequence[Any]) -> list[float] | None:
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        return None
    return numbers if np.isfinite(numbers).all() else None


def _dates(values: Sequence[Any]) -> list[float] | None:
    try:
        return [datetime.fromisoformat(str(value)).replace(tzinfo=None).toordinal() for value in values]
    except ValueError:
        return None
