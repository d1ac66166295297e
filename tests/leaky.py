"""Cohorts that look like EEG, clean unless a test plants something in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.storage.artifact import visible_files, write_manifest

Signals = dict[str, NDArray[np.float32]]  # by subject: channels x samples


def signals(
    n: int = 24, *, n_channels: int = 6, seconds: float | Sequence[float] = 20, sfreq: float = 200.0, seed: int = 0
) -> Signals:
    """Continuous signals of ``n`` people: coloured noise, a part common to all electrodes, alpha of their own."""
    from scipy.signal import lfilter

    rng = np.random.default_rng(seed)
    lengths = [seconds] * n if isinstance(seconds, int | float) else list(seconds)
    people: Signals = {}
    for i, length in enumerate(lengths):
        size = round(length * sfreq)
        noise = lfilter([1], [1, -0.9], rng.normal(size=(n_channels + 1, size)), axis=1)
        time = np.arange(size) / sfreq
        alpha = rng.uniform(0.5, 2) * np.sin(2 * np.pi * rng.uniform(8, 12) * time + rng.uniform(0, 6.28))
        gains = rng.uniform(0.8, 1.2, (n_channels, 1))
        people[f"sub-{i + 1:02d}"] = (5 * gains * (noise[1:] + noise[0] + alpha)).astype(np.float32)
    return people


def with_artefacts(people: Signals, *, sfreq: float = 200.0, pops: int = 3, seed: int = 0) -> Signals:
    """The same people as a consumer headset would record them: electrode pops, drifts, line noise.

    A pop of the reference electrode of up to 7 mV reaches all channels, in nearly the same proportions in everybody:
    two recordings with a pop each correlate at the offset that aligns the two. The first person has four seconds full
    of them, the others one every now and then.
    """
    from scipy.signal import butter, sosfiltfilt

    rng = np.random.default_rng(seed)
    band = butter(2, (0.5, 0.45 * sfreq), "band", fs=sfreq, output="sos")
    n_channels = len(next(iter(people.values())))
    pattern = rng.normal(0, 1, (n_channels, 1))
    pattern /= np.abs(pattern).max()
    noisy: Signals = {}
    for number, (name, signal) in enumerate(people.items()):
        time = np.arange(signal.shape[1]) / sfreq
        begin = rng.uniform(0, max(time[-1] - 4, 0.1))
        times = begin + 4 * rng.random(8) if number == 0 else time[-1] * rng.random(rng.integers(pops + 1))
        artefacts = np.zeros(signal.shape)
        for at in times:
            height = rng.choice([-1, 1]) * rng.uniform(2000, 7000)
            artefacts += height * pattern * (time >= at) * np.exp(-np.maximum(time - at, 0) / 0.05)
        artefacts += rng.normal(0, 100, (n_channels, 1)) * np.sin(2 * np.pi * rng.uniform(0.02, 0.2) * time)
        line = rng.uniform(0, 10) * np.sin(2 * np.pi * 50 * time + rng.uniform(0, 6.28))
        noisy[name] = (signal + sosfiltfilt(band, artefacts + rng.uniform(0.5, 1.5, (n_channels, 1)) * line)).astype(
            np.float32
        )
    return noisy


def cleaned_again(signal: NDArray[np.float32], sfreq: float = 200.0, seed: int = 0) -> NDArray[np.float32]:
    """A recording as another pipeline cleans it: 1.00 s later, other filters, components removed, average reference."""
    from scipy.signal import butter, sosfiltfilt

    rng = np.random.default_rng(seed)
    later = np.roll(signal, round(sfreq), axis=1)
    filtered = sosfiltfilt(butter(2, (1.0, 30.0), "band", fs=sfreq, output="sos"), later)
    directions = np.linalg.svd(filtered, full_matrices=False)[0]
    removed = directions[:, rng.choice(np.arange(1, min(8, len(signal))), 2, replace=False)]
    kept = filtered - removed @ (removed.T @ filtered)
    return (kept - kept.mean(axis=0)).astype(np.float32)


def cut(signal: NDArray[np.float32], n_times: int = 200) -> NDArray[np.float32]:
    """Every full window: windows x channels x samples."""
    n = signal.shape[1] // n_times
    return signal[:, : n * n_times].reshape(len(signal), n, n_times).transpose(1, 0, 2).copy()


def labelled(n: int, classes: Sequence[str] = ("control", "patient"), seed: int = 1) -> list[str]:
    """Equally many of each, in no order."""
    rng = np.random.default_rng(seed)
    return [str(name) for name in rng.permutation([classes[i % len(classes)] for i in range(n)])]


def files_of(cohort: Cohort, **more: Callable[[str], Any]) -> list[dict[str, Any]]:
    """What ``prepare`` would write of one file a subject; ``more`` gives further or other values by subject."""
    return [
        {"subject": s, "file": f"{s}/{s}_eeg.edf", "sha256": f"{i:064x}", "bytes": 1000, "sfreq": 500.0,
         "native_sfreq": 500.0, "seconds": 20.0, "windows": cohort.records[s].n_windows, "marked_bad": 0,
         "dropped_marked_bad": 0, "dropped_amplitude": 0, "n_channels": 6, "identity": None, "day": None}
        | {key: value(s) for key, value in more.items()}
        for i, s in enumerate(cohort.subjects)
    ]  # fmt: skip


def made(
    people: Mapping[str, Any],
    labels: Sequence[str] | None = None,
    *,
    columns: Mapping[str, Sequence[Any]] | None = None,
    sfreq: float = 200.0,
    n_times: int = 200,
) -> Cohort:
    """A cohort in memory of continuous signals, or of bags and lists of bags as they are."""
    bags = [cut(v, n_times) if isinstance(v, np.ndarray) and v.ndim == 2 else v for v in people.values()]
    first = bags[0][0] if isinstance(bags[0], list) else bags[0]
    names = [f"E{i + 1}" for i in range(first.shape[1])]
    return Cohort.from_arrays(
        bags, labels or labelled(len(bags)), list(people), sfreq, names, columns=columns, burn_in=1
    )


def with_files(cohort: Cohort, **more: Callable[[str], Any]) -> Cohort:
    """The cohort as if it had been prepared from one file a subject."""
    files = files_of(cohort, **more)
    records = [replace(r, recordings=(file["file"],)) for r, file in zip(cohort.records.values(), files, strict=True)]
    about = cohort.metadata | {"files": files, "source": "bids"}
    return Cohort(records, about, cohort._columns, arrays=cohort._arrays)


def resealed(folder: Path, kind: str = "run") -> None:
    """Write the manifest again, as if the pipeline itself had written what is wrong with the files."""
    write_manifest(folder, kind, visible_files(folder))


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file by hand, as somebody careless would."""
    content = json.loads(file.read_text("utf-8"))
    change(content)
    file.write_text(json.dumps(content), "utf-8")
