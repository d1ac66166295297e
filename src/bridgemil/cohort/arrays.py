"""A cohort from arrays or ``mne.Epochs``, under the checks that ``prepare`` makes, as far as arrays can tell."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.folder import SubjectRecord, default_folds, describe
from bridgemil.cohort.sources import respelt
from bridgemil.cohort.tables import is_missing
from bridgemil.errors import BadData, BadUse, BridgeMILWarning

VOLTS = 1e-3  # windows that vary by less than this are hardly microvolts


@dataclass(frozen=True)
class Gathered:
    """The parts of a cohort in memory (see ``Cohort``)."""

    records: list[SubjectRecord]
    about: dict[str, Any]
    columns: dict[str, dict[str, Any]]  # by subject
    arrays: dict[str, NDArray[np.float32]]  # by subject: n_windows x n_channels x n_times, microvolt


def gather(
    bags: Sequence[Any],
    labels: Sequence[Any],
    subjects: Sequence[str] | None,
    sfreq: float | None,
    channels: Sequence[str] | None,
    *,
    columns: Mapping[str, Sequence[Any]],
    native_sfreq: float | None,
    folds: int | None,
    burn_in: int,
) -> Gathered:
    """Check what ``Cohort.from_arrays`` was given and put it together; its parameters are described there."""
    names = _names(bags, labels, subjects)
    for what, given in (("sfreq", sfreq), ("native_sfreq", native_sfreq)):
        if given is not None and not 0 < given < np.inf:
            raise BadUse(f"{what} is a rate in Hz, got {given}")
    further = _by_subject(columns, names)
    arrays, records = {}, []
    for name, label, bag in zip(names, labels, bags, strict=True):
        pieces, rate, electrodes = pieces_of(name, bag)
        sfreq = rate if sfreq is None else sfreq
        channels = electrodes if channels is None else [str(channel) for channel in channels]
        if rate not in (None, sfreq) or electrodes not in (None, channels):
            raise BadUse(f"{name}: its rate or channels differ from those of the first subject or of the arguments")
        arrays[name] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        files = [f"array {i + 1}" for i in range(len(pieces))]
        records.append(describe(name, str(label), arrays[name], files, [len(piece) for piece in pieces]))
    _refuse_copies(records)
    if sfreq is None or channels is None:
        raise BadUse("sfreq and channels are needed when the bags are plain arrays")
    shapes = {array.shape[1:] for array in arrays.values()}
    if len(shapes) > 1 or len(channels) != next(iter(shapes))[0]:
        raise BadUse(f"all windows need one shape of {len(channels)} channels x time; found {sorted(shapes)}")
    _warn_of_volts(records, arrays)
    about = {
        "source": "arrays", "channels": list(channels), "sfreq": float(sfreq), "n_times": next(iter(shapes))[1],
        "native_sfreq": None if native_sfreq is None else float(native_sfreq),
        "folds": folds or default_folds([str(label) for label in labels]), "burn_in": burn_in,
        "settings": {}, "left_out": [], "notes": [], "files": [],
    }  # fmt: skip
    return Gathered(records, about, further, arrays)


def _names(bags: Sequence[Any], labels: Sequence[Any], subjects: Sequence[str] | None) -> list[str]:
    names = [f"subject-{i + 1:03d}" for i in range(len(bags))] if subjects is None else [str(s) for s in subjects]
    if not len(bags) == len(labels) == len(names) or not names:
        raise BadUse(f"{len(bags)} bags, {len(labels)} labels and {len(names)} subjects: one of each per subject")
    missing = [name for name, label in zip(names, labels, strict=True) if is_missing(label)]
    if missing:
        raise BadUse(f"no label for {', '.join(missing)}")
    for label, usual in respelt(map(str, labels)).items():
        raise BadUse(f"labels {label!r} and {usual!r} differ only in capitals or spaces; write them alike")
    if len(set(names)) < len(names):
        raise BadUse("a subject is named twice; give a person's recordings as a list of arrays in one bag")
    return names


def _by_subject(columns: Mapping[str, Sequence[Any]], subjects: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Columns turned into what is known of each subject."""
    known: dict[str, dict[str, Any]] = {subject: {} for subject in subjects}
    for name, values in columns.items():
        if name in SubjectRecord.__dataclass_fields__:
            raise BadUse(f"a column cannot be named {name!r}: the cohort has one of that name already")
        if isinstance(values, str) or len(values) != len(subjects):
            raise BadUse(f"column {name!r} has {len(values)} values; the cohort has {len(subjects)} subjects")
        for subject, value in zip(subjects, values, strict=True):
            known[subject][str(name)] = value.item() if isinstance(value, np.generic) else value
    return known


def is_epochs(value: Any) -> bool:
    """Whether it is ``mne.Epochs``, told without importing MNE."""
    return hasattr(value, "get_data") and hasattr(value, "info")


def pieces_of(name: str, bag: Any) -> tuple[list[NDArray[np.float32]], float | None, list[str] | None]:
    """A bag's recordings as arrays, and the rate and channels if they are Epochs, which know them.

    Parameters
    ----------
    name
        Whose they are, for messages.
    bag
        An array (n_windows, n_channels, n_times) in microvolts, ``mne.Epochs``, or a list of these, one per recording.
    """
    pieces: list[NDArray[np.float32]] = []
    known: list[tuple[float, list[str]]] = []
    for value in bag if isinstance(bag, (list, tuple)) else [bag]:
        if is_epochs(value):  # in volts, and with other channels than EEG
            if value.info["bads"]:
                raise BadUse(
                    f"{name}: its Epochs have bad channels {value.info['bads']}; drop or interpolate them first"
                )
            epochs = value.copy().pick("eeg")
            known.append((float(epochs.info["sfreq"]), list(epochs.ch_names)))
            pieces.append(np.asarray(epochs.get_data(verbose="ERROR") * 1e6, dtype=np.float32))
        else:
            pieces.append(np.asarray(value, dtype=np.float32))
    for piece in pieces:
        if piece.ndim != 3 or 0 in piece.shape:
            raise BadUse(f"{name}: a bag is an array (n_windows, n_channels, n_times), got shape {piece.shape}")
        if not np.isfinite(piece).all():
            raise BadData(f"{name}: the windows contain NaN or infinite values")
    if any(own != known[0] for own in known):
        raise BadUse(f"{name}: its Epochs differ in their rate, or in their channels or the order of these")
    rate, electrodes = known[0] if known else (None, None)
    return pieces, rate, electrodes


def bags_of(X: Any) -> tuple[list[NDArray[np.float32]], float | None, list[str] | None]:
    """The bags of a classifier's ``X`` as arrays, and the rate and channels that ``mne.Epochs`` among them have.

    Parameters
    ----------
    X
        One entry per subject: an array (n_windows, n_channels, n_times) in microvolts, or ``mne.Epochs``.

    Returns
    -------
    bags, sfreq, channels
        The last two are None if there are no Epochs.
    """
    if is_epochs(X):
        raise BadUse("X must be a list of bags, one per subject; got the Epochs of one: give [epochs]")
    if not hasattr(X, "__len__") or isinstance(X, (str, bytes, Mapping)):
        raise BadUse(f"X must be a list of bags, arrays (n_windows, n_channels, n_times); got {type(X).__name__}")
    bags, known = [], list[tuple[float, list[str]]]()
    for place, value in enumerate(X):
        if is_epochs(value):
            (value,), rate, channels = pieces_of(f"X[{place}]", value)
            assert rate is not None and channels is not None  # noqa: PT018
            known.append((rate, channels))
        try:
            bag = np.asarray(value, dtype=np.float32)
        except (TypeError, ValueError):
            bag = np.empty(0, dtype=np.float32)
        if bag.ndim != 3 or 0 in bag.shape:
            shape = getattr(value, "shape", type(value).__name__)
            raise BadUse(f"X[{place}]: a bag is an array (n_windows, n_channels, n_times) of numbers, got {shape}")
        if not np.isfinite(bag).all():
            raise BadUse(f"X[{place}]: contains NaN or infinite values")
        bags.append(bag)
    if any(own != known[0] for own in known):
        raise BadUse("the Epochs in X differ in their rate, or in their channels or the order of these")
    return (bags, *known[0]) if known else (bags, None, None)


def warn_of_volts(bags: Sequence[NDArray[np.float32]]) -> None:
    """Warn if windows that should be in microvolts look like volts; of arrays whose sums are not known yet."""
    spread = float(np.sqrt(np.mean([bag.var(axis=(0, 2), dtype=np.float64).mean() for bag in bags]))) if bags else 0.0
    _warn_if_volts(spread, stacklevel=5)


def _refuse_copies(records: Sequence[SubjectRecord]) -> None:
    seen: dict[str, str] = {}
    for record in records:
        twin = seen.setdefault(record.signal_hash, record.subject)
        if twin != record.subject:
            raise BadData(f"{record.subject} and {twin} have the same windows: one person cannot be two subjects")


def _warn_of_volts(records: Sequence[SubjectRecord], arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Warn if windows that should be in microvolts look like volts."""
    squares = sum(sum(record.centred_squares) for record in records)
    spread = float(np.sqrt(squares / sum(array.size for array in arrays.values())))
    _warn_if_volts(spread, stacklevel=5)


def _warn_if_volts(spread: float, stacklevel: int) -> None:
    if 0 < spread < VOLTS:
        warnings.warn(
            f"the windows vary by {spread:.1e} (standard deviation): that looks like volts, microvolts are expected; "
            "multiply them by 1e6",
            BridgeMILWarning,
            stacklevel=stacklevel,  # where the user calls
        )
