"""A cohort from arrays or ``mne.Epochs``, under the checks that ``prepare`` makes, as far as arrays allow them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.folder import SubjectRecord, describe
from bridgemil.cohort.sources import respelt
from bridgemil.cohort.tables import is_missing
from bridgemil.errors import BadData, BadUse, BridgeMILWarning

Bag = NDArray[np.float32]  # n_windows x n_channels x n_times, microvolt
VOLTS = 1e-3  # windows that vary by less than this are hardly microvolts


def read_bags(
    bags: Sequence[Any], names: Sequence[str], labels: Sequence[Any], sfreq: float | None,
    channels: Sequence[str] | None,
) -> tuple[list[SubjectRecord], dict[str, Bag], float, list[str]]:  # fmt: skip
    """Records, bags by subject, rate (Hz) and channels; parameters as of ``Cohort.from_arrays``."""
    arrays: dict[str, Bag] = {}
    records: list[SubjectRecord] = []
    for name, label, bag in zip(names, labels, bags, strict=True):
        recordings = bag if isinstance(bag, (list, tuple)) else [bag]
        pieces, rate, electrodes = _arrays([(name, recording) for recording in recordings], f"{name}: its Epochs")
        sfreq = rate if sfreq is None else sfreq
        channels = electrodes if channels is None else [str(channel) for channel in channels]
        if rate not in (None, sfreq) or electrodes not in (None, channels):
            raise BadUse(f"{name}: its rate or channels differ from those of the first subject or of the arguments")
        arrays[name] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        files = [f"array {i + 1}" for i in range(len(pieces))]
        record = describe(name, str(label), arrays[name], files, [len(piece) for piece in pieces])
        if twins := [other.subject for other in records if other.signal_hash == record.signal_hash]:
            raise BadData(f"{name} and {twins[0]} have the same windows: one person cannot be two subjects")
        records.append(record)
    if sfreq is None or channels is None:
        raise BadUse("sfreq and channels are needed when the bags are plain arrays")
    shapes = {array.shape[1:] for array in arrays.values()}
    if len(shapes) > 1 or len(channels) != next(iter(shapes))[0]:
        raise BadUse(f"all windows need one shape of {len(channels)} channels x time; found {sorted(shapes)}")
    warn_of_volts(list(arrays.values()))
    return records, arrays, float(sfreq), list(channels)


def subject_ids(bags: Sequence[Any], labels: Sequence[Any], subjects: Sequence[str] | None) -> list[str]:
    """The ids of the subjects, by default ``subject-001`` and so on; parameters as of ``Cohort.from_arrays``."""
    names = [f"subject-{i + 1:03d}" for i in range(len(bags))] if subjects is None else [str(s) for s in subjects]
    if not len(bags) == len(labels) == len(names) or not names:
        raise BadUse(f"{len(bags)} bags, {len(labels)} labels and {len(names)} subjects: one of each per subject")
    if missing := [name for name, label in zip(names, labels, strict=True) if is_missing(label)]:
        raise BadUse(f"no label for {', '.join(missing)}")
    for label, usual in respelt(map(str, labels)).items():
        raise BadUse(f"labels {label!r} and {usual!r} differ only in capitals or spaces; write them alike")
    if len(set(names)) < len(names):
        raise BadUse("a subject is named twice; give a person's recordings as a list of arrays in one bag")
    return names


def by_subject(columns: Mapping[str, Sequence[Any]], subjects: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Columns as one dict per subject."""
    known: dict[str, dict[str, Any]] = {subject: {} for subject in subjects}
    for name, values in columns.items():
        if name in SubjectRecord.__dataclass_fields__:
            raise BadUse(f"a column cannot be named {name!r}: the cohort has one of that name already")
        if isinstance(values, str) or len(values) != len(subjects):
            raise BadUse(f"column {name!r} has {len(values)} values; the cohort has {len(subjects)} subjects")
        for subject, value in zip(subjects, values, strict=True):
            known[subject][str(name)] = value.item() if isinstance(value, np.generic) else value
    return known


def bags_of(X: Any) -> tuple[list[Bag], float | None, list[str] | None]:
    """The bags of a classifier's ``X`` as arrays; rate (Hz) and channels if there are ``mne.Epochs`` among them."""
    if _is_epochs(X):
        raise BadUse("X must be a list of bags, one per subject; got the Epochs of one: give [epochs]")
    if not hasattr(X, "__len__") or isinstance(X, (str, bytes, Mapping)):
        raise BadUse(f"X must be a list of bags, arrays (n_windows, n_channels, n_times); got {type(X).__name__}")
    return _arrays([(f"X[{place}]", value) for place, value in enumerate(X)], "the Epochs in X")


def _is_epochs(value: Any) -> bool:
    """Whether it is ``mne.Epochs``, without importing MNE."""
    return hasattr(value, "get_data") and hasattr(value, "info")


def _arrays(named: Sequence[tuple[str, Any]], whose: str) -> tuple[list[Bag], float | None, list[str] | None]:
    """Recordings as arrays, and the rate (Hz) and channels that all Epochs among them share; None without Epochs."""
    arrays, known = list[Bag](), list[tuple[float, list[str]]]()
    for name, value in named:
        if _is_epochs(value):
            if value.info["bads"]:
                raise BadUse(f"{name}: its Epochs have bad channels {value.info['bads']}; drop or interpolate them")
            epochs = value.copy().pick("eeg")
            known.append((float(epochs.info["sfreq"]), list(epochs.ch_names)))
            value = epochs.get_data(verbose="ERROR") * 1e6
        try:
            array = np.asarray(value, dtype=np.float32)
        except (TypeError, ValueError):
            array = np.empty(0, dtype=np.float32)
        if array.ndim != 3 or 0 in array.shape:
            shape = getattr(value, "shape", type(value).__name__)
            raise BadUse(f"{name}: a bag is an array (n_windows, n_channels, n_times) of numbers, got {shape}")
        if not np.isfinite(array).all():
            raise BadUse(f"{name}: contains NaN or infinite values")
        arrays.append(array)
    if any(one != known[0] for one in known):
        raise BadUse(f"{whose} differ in their rate, or in their channels or the order of these")
    sfreq, channels = known[0] if known else (None, None)
    return arrays, sfreq, channels


def warn_of_volts(bags: Sequence[Bag]) -> None:
    """Warn the caller's caller if windows that should be in microvolts look like volts."""
    spread = float(np.sqrt(np.mean([bag.var(axis=(0, 2), dtype=np.float64).mean() for bag in bags]))) if bags else 0.0
    if 0 < spread < VOLTS:
        warnings.warn(
            f"the windows vary by {spread:.1e} (standard deviation): that looks like volts, microvolts are expected; "
            "multiply them by 1e6",
            BridgeMILWarning,
            stacklevel=4,  # where the user calls
        )
