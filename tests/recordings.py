"""Recordings for the tests: small, but real files that go through the real readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from edfio import Bdf, BdfSignal, Edf, EdfAnnotation, EdfSignal

MONTAGE = ("Fp1", "Fp2", "C3", "C4", "O1", "O2")


def noise(seed: int, seconds: float, sfreq: float, n_channels: int = len(MONTAGE)) -> np.ndarray:
    """Something like EEG: 20 µV of noise, channels x time."""
    return np.random.default_rng(seed).normal(0, 20, (n_channels, round(seconds * sfreq)))


def write_edf(
    path: Path,
    signal: np.ndarray,
    sfreq: float,
    names: Sequence[str],
    annotations: Sequence[tuple[float, float, str]] = (),
) -> Path:
    """Write an EDF or, by its ending, a BDF file; microvolts, range fixed so that flat channels are allowed."""
    bdf = path.suffix.lower() == ".bdf"
    one, whole = (BdfSignal, Bdf) if bdf else (EdfSignal, Edf)
    signals = [
        one(row, sfreq, label=name, physical_dimension="uV", physical_range=(-3000, 3000))
        for name, row in zip(names, signal, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    seconds = signal.shape[1] / sfreq
    marks = [EdfAnnotation(*a) for a in annotations] or None
    whole(signals, annotations=marks, data_record_duration=1 if seconds % 1 == 0 else 0.2).write(path)
    return path


def build_bids(
    root: Path,
    labels: Mapping[str, str],
    *,
    seconds: float = 8,
    sfreq: float = 250,
    names: Sequence[str] = MONTAGE,
    seed: int = 0,
) -> Path:
    """A BIDS folder with one EDF a subject."""
    root.mkdir(parents=True, exist_ok=True)
    rows = ["participant_id\tGroup\tAge", *(f"{s}\t{label}\t{60 + i}" for i, (s, label) in enumerate(labels.items()))]
    (root / "participants.tsv").write_text("\n".join(rows) + "\n")
    (root / "dataset_description.json").write_text('{"Name": "test", "BIDSVersion": "1.8.0"}')
    for number, subject in enumerate(labels):
        path = root / subject / "eeg" / f"{subject}_task-rest_eeg.edf"
        write_edf(path, noise(seed + number, seconds, sfreq, len(names)), sfreq, names)
    return root
