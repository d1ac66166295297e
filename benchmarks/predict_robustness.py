"""Predictions and warnings of the package's model `alzheimer` when a recording is changed: real subjects.

    python benchmarks/predict_robustness.py [SOURCE] [--people N] [--quick]

SOURCE is the BIDS folder of ADFTD at 95 Hz (by default the package's minutes of it). The Alzheimer's and healthy people
in it trained the model, so that the table shows what a change does, not how good the model is; people with
frontotemporal dementia, who are in SOURCE only, did not, and are of neither class.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import mne
import numpy as np
from edfio import Edf, EdfSignal

from bridgemil.bundle import load
from bridgemil.bundle.bundle import Bundle
from bridgemil.bundle.prediction import RecordingPrediction, Refused, predict

SHORT = Path(__file__).parents[1] / "src" / "bridgemil" / "recordings" / "adftd-60s"
SICK = "Alzheimer"
MAINS = 49.95  # Hz: never quite 50, which would fall between the bins of a window of one second
Change = Callable[[mne.io.BaseRaw], mne.io.BaseRaw]


def times(gain: float) -> Change:
    return lambda raw: raw.copy().apply_function(lambda x: gain * x, verbose="error")


def at_500_hz(raw: mne.io.BaseRaw) -> mne.io.BaseRaw:
    return raw.copy().resample(500, verbose="error")


def tone(microvolts: float, hertz: float = MAINS) -> Change:
    def change(raw: mne.io.BaseRaw) -> mne.io.BaseRaw:
        raw = at_500_hz(raw)
        strength = np.random.default_rng(0).uniform(0.5, 1.5, (len(raw.ch_names), 1))  # electrodes pick up unequally
        raw._data += 1e-6 * microvolts * strength * np.sin(2 * np.pi * hertz * raw.times)
        return raw

    return change


def white(raw: mne.io.BaseRaw) -> mne.io.BaseRaw:
    raw = at_500_hz(raw)
    raw._data = 1e-5 * np.random.default_rng(0).normal(size=raw._data.shape)
    return raw


def reference(*electrodes: str) -> Change:
    """Re-reference to the mean of some electrodes (of all without a name)."""

    def change(raw: mne.io.BaseRaw) -> mne.io.BaseRaw:
        raw = raw.copy()
        raw._data -= raw.get_data(electrodes or None).mean(axis=0)
        return raw

    return change


def flat(raw: mne.io.BaseRaw) -> mne.io.BaseRaw:
    raw = raw.copy()
    raw._data[raw.ch_names.index("C3")] = 0
    return raw


def part(first: float, last: float) -> Change:
    return lambda raw: raw.copy().crop(first * raw.times[-1], last * raw.times[-1])


CHANGES: dict[str, tuple[Change, dict[str, str]]] = {  # and the options of `predict`
    "gain x 0.1": (times(0.1), {}),
    "gain x 10": (times(10), {}),
    "volts taken for microvolts": (times(1e-6), {}),
    "the same, as a 500 Hz file": (at_500_hz, {}),
    "50 Hz noise, 5 µV": (tone(5), {}),
    "50 Hz noise, 50 µV": (tone(50), {}),
    "40 Hz noise, 20 µV": (tone(20, 40.0), {}),
    "white noise in place of the EEG": (white, {}),
    "average reference": (reference(), {}),
    "reference (O1+O2)/2": (reference("O1", "O2"), {}),
    "reference Cz, --recorded-reference Cz": (reference("Cz"), {"recorded_reference": "Cz"}),
    "C3 flat": (flat, {}),
    "C3 flat, --bad-channels interpolate": (flat, {"bad_channels": "interpolate"}),
    "first half": (part(0, 0.5), {}),
    "second half": (part(0.5, 1), {}),
}


@dataclass(frozen=True)
class Answer:
    """Of one file: the probability (None if it was refused), out of distribution or not, the percentile."""

    p: float | None
    novel: bool = False
    percentile: float = 0.0
    other_warning: bool = False
    why: str = ""


def ask(bundle: Bundle, file: Path, **options: Any) -> Answer:
    (found,) = predict(bundle, [file], **options)
    if isinstance(found, Refused):
        return Answer(None, why=found.why)
    assert isinstance(found, RecordingPrediction)
    novel = [
        warning for warning in found.warnings if warning.startswith(("out of distribution", "prediction withheld"))
    ]
    p = float(found.probabilities[found.bundle.classes.index(SICK)])
    return Answer(p, bool(novel), found.percentile, len(found.warnings) > len(novel))


def write(file: Path, raw: mne.io.BaseRaw) -> Path:
    whole = int(raw.info["sfreq"])
    x = raw.get_data()[:, : whole * (len(raw.times) // whole)] * 1e6
    signals = []
    for name, values in zip(raw.ch_names, x, strict=True):
        top = 1.01 * max(float(np.abs(values).max()), 1e-3)
        signals.append(EdfSignal(values, whole, label=name, physical_dimension="uV", physical_range=(-top, top)))
    Edf(signals).write(file)
    return file


def people(source: Path, group: str, n: int) -> list[Path]:
    with (source / "participants.tsv").open(encoding="utf-8", newline="") as stream:
        ids = [row["participant_id"] for row in csv.DictReader(stream, delimiter="\t") if row["Group"] == group]
    spaced = np.unique(np.linspace(0, len(ids) - 1, min(n, len(ids))).round().astype(int)) if ids else []
    return [next((source / ids[i] / "eeg").glob("*.edf")) for i in spaced]


def row(name: str, plain: list[Answer], changed: list[Answer]) -> str:
    pairs = [(a.p, b.p) for a, b in zip(plain, changed, strict=True) if a.p is not None and b.p is not None]
    n, refused = len(changed), sum(answer.p is None for answer in changed)
    novel, other = (sum(getattr(answer, what) for answer in changed) for what in ("novel", "other_warning"))
    if not pairs:
        return f"| {name} | - | - | - | - | - | {refused} of {n}: {changed[0].why[:90]} |"
    shift = np.abs([a - b for a, b in pairs])
    turned = sum((a > 0.5) != (b > 0.5) for a, b in pairs)
    return (
        f"| {name} | {shift.mean():.3f} | {shift.max():.3f} | {turned} of {len(pairs)} | {novel} of {n} | "
        f"{other} of {n} | {refused} of {n} |"
    )


def table(bundle: Bundle, files: list[Path], folder: Path) -> Iterator[str]:
    plain = [ask(bundle, file) for file in files]
    yield "| changed | shift of p, mean | largest | class changed | out of distribution | other warnings | refused |"
    yield "|---|---|---|---|---|---|---|"
    yield row("nothing", plain, plain)
    raws = [mne.io.read_raw_edf(file, preload=True, verbose="error") for file in files]
    halves: dict[str, list[Answer]] = {}
    for name, (change, options) in CHANGES.items():
        changed = [ask(bundle, write(folder / "new.edf", change(raw)), **options) for raw in raws]
        halves[name] = changed
        yield row(name, plain, changed)
    yield row("same person: first half against second", halves["first half"], halves["second half"])
    same_class = [pair for group in (plain[: len(plain) // 2], plain[len(plain) // 2 :]) for pair in pairwise(group)]
    yield row("another person of the same class", *map(list, zip(*same_class, strict=True)))


def main() -> None:
    quick = "--quick" in sys.argv
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    n = 2 if quick else int(sys.argv[sys.argv.index("--people") + 1]) if "--people" in sys.argv else 8
    source = SHORT if quick or not given else Path(given[0])
    bundle = load("alzheimer")
    files = [*people(source, "A", n // 2 + quick), *people(source, "C", n // 2 + quick)]
    print(f"{bundle.title}: {len(files)} of the people who trained it, from {source.name}; p is of {SICK}\n")
    if quick:
        for name in [name for name in CHANGES if "0 Hz noise" in name or "interpolate" in name]:
            del CHANGES[name]
    with tempfile.TemporaryDirectory() as folder:
        for line in table(bundle, files, Path(folder)):
            print(line, flush=True)
    error = bundle.metadata["calibration"]["error"]
    for when in ("before", "after"):
        low, high = error[when]["ci95"]
        print(f"\ncalibration error {when} calibration, held-out people: {error[when]['value']:.3f} "
              f"(95 % {low:.3f} to {high:.3f})")  # fmt: skip
    strangers = [ask(bundle, file) for file in people(source, "F", n)]
    if strangers:
        p = np.array([answer.p for answer in strangers])
        print(
            f"\n{len(p)} people with frontotemporal dementia, never seen, of neither class: p of {SICK} {p.min():.2f} "
            f"to {p.max():.2f}, mean {p.mean():.2f}; {sum(a.novel for a in strangers)} out of distribution"
        )


if __name__ == "__main__":
    main()
