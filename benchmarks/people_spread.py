"""How different are people, and how different is a person from moment to moment? Real controls beside synthetic ones.

Of every one-second window: the log relative power of six bands at each electrode, and the matrix logarithm of each
band's cross-spectrum. A variance of these has two parts (one-way random effects): between people (how far their means
lie apart) and within a person (from window to window). The share of the first is the intraclass correlation: how much
of what a window shows is whose it is. The generator's defaults were set by this table.

Each table comes twice: as recorded, and to the average reference, which takes out what all electrodes share.

   bridgemil prepare ../shared/data/adftd-300s adftd.cohort --label Group
   python benchmarks/people_spread.py adftd.cohort --label C
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from scipy.signal.windows import hann

from bridgemil import Cohort
from bridgemil.cohort.synthetic import SynthSettings, simulate

BANDS = ((1, 4), (4, 8), (8, 13), (13, 20), (20, 30), (30, 45))  # Hz
SHRINKAGE = 0.1  # a band of a second holds too few cycles for a full-rank matrix
RATE = 200  # of the synthetic people, that of the prepared cohort


class Spread:
    """Variances between and within people of many features, gathered person by person."""

    def __init__(self) -> None:
        self.means: list[np.ndarray] = []
        self.variances: list[np.ndarray] = []
        self.counts: list[int] = []

    def add(self, values: np.ndarray) -> None:
        """Take a person's features (windows x any shape)."""
        self.means.append(values.mean(axis=0))
        self.variances.append(values.var(axis=0, ddof=1))
        self.counts.append(len(values))

    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The variance between people (without what comes from few windows) and within a person, per feature."""
        within = np.mean(self.variances, axis=0)
        between = np.var(self.means, axis=0, ddof=1) - within * np.mean(1 / np.array(self.counts))
        return np.maximum(between, 0), within


def spectra(bag: np.ndarray, sfreq: float) -> list[np.ndarray]:
    """The Hann-windowed Fourier coefficients of each band (windows x channels x frequencies)."""
    taper = hann(bag.shape[-1], sym=False)
    transform = np.fft.rfft((bag - bag.mean(axis=-1, keepdims=True)) * taper, axis=-1)
    frequency = np.fft.rfftfreq(bag.shape[-1], 1 / sfreq)
    return [transform[..., (frequency >= low) & (frequency < high)] for low, high in BANDS]


def band_power(bag: np.ndarray, sfreq: float) -> np.ndarray:
    """Log relative power (windows x channels x bands)."""
    power = np.stack([(np.abs(part) ** 2).sum(axis=-1) for part in spectra(bag, sfreq)], axis=-1) + 1e-12
    return np.log(power / power.sum(axis=-1, keepdims=True))


def log_covariance(bag: np.ndarray, sfreq: float) -> np.ndarray:
    """Matrix logarithm of each band's cross-spectrum, upper triangle (windows x bands x entries)."""
    n_channels = bag.shape[1]
    rows, columns = np.triu_indices(n_channels)
    logs = []
    for part in spectra(bag, sfreq):
        matrix = (part @ part.conj().transpose(0, 2, 1)).real
        matrix /= np.trace(matrix, axis1=1, axis2=2)[:, None, None] / n_channels + 1e-12
        values, vectors = np.linalg.eigh((1 - SHRINKAGE) * matrix + SHRINKAGE * np.eye(n_channels))
        logs.append(((vectors * np.log(values)[:, None]) @ vectors.transpose(0, 2, 1))[:, rows, columns])
    return np.stack(logs, axis=1)


def measure(bags: Iterable[np.ndarray], sfreq: float) -> dict[str, tuple[float, float]]:
    """Standard deviations between and within people: of each band's power, of each band's covariance, of all of it."""
    power, covariance = Spread(), Spread()
    for bag in bags:
        power.add(band_power(bag, sfreq))
        covariance.add(log_covariance(bag, sfreq))
    names = [*(f"{low}-{high} Hz" for low, high in BANDS), "all bands"]
    table = {}
    for what, parts in (
        ("power", [part.mean(axis=0) for part in power.parts()]),  # over electrodes
        ("covariance", [part.mean(axis=1) for part in covariance.parts()]),  # over the matrix's entries
    ):
        between, within = (np.sqrt([*part, part.mean()]) for part in parts)
        table |= {f"{what}, {n}": (float(b), float(w)) for n, b, w in zip(names, between, within, strict=True)}
    return table


def real_people(path: Path, label: str, most: int) -> tuple[list[np.ndarray], float]:
    cohort = Cohort.open(path)
    chosen = [s for s, diagnosis in zip(cohort.subjects, cohort.labels, strict=True) if diagnosis == label]
    if len(chosen) < 2:
        raise SystemExit(f"{path}: fewer than two subjects of class {label!r}; it has {', '.join(cohort.classes)}")
    return [np.asarray(cohort.windows(s), dtype=np.float64) for s in chosen[:most]], cohort.sfreq


def synthetic_people(settings: SynthSettings) -> list[np.ndarray]:
    """The controls of a synthetic cohort, in windows of a second."""
    bags = []
    for index in range(0, settings.subjects, settings.classes):
        signal = simulate(settings, index).signal
        bags.append(signal.reshape(len(signal), settings.seconds, settings.sfreq).transpose(1, 0, 2))
    return bags


def average(tables: list[dict[str, tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    """Root mean squares over cohorts."""
    rows = {name: np.sqrt(np.mean([np.square(t[name]) for t in tables], axis=0)) for name in tables[0]}
    return {name: (float(b), float(w)) for name, (b, w) in rows.items()}


def share(between: float, within: float) -> float:
    """The intraclass correlation."""
    return between**2 / (between**2 + within**2)


def print_table(real: dict[str, tuple[float, float]] | None, synthetic: dict[str, tuple[float, float]]) -> None:
    print("| | real: between | within | ICC | synthetic: between | within | ICC | ratio between | within |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, (b, w) in synthetic.items():
        cells = [f"{b:.3f}", f"{w:.3f}", f"{share(b, w):.2f}"]
        if real is None:
            cells = ["", "", "", *cells, "", ""]
        else:
            rb, rw = real[name]
            cells = [f"{rb:.3f}", f"{rw:.3f}", f"{share(rb, rw):.2f}", *cells, f"{b / rb:.2f}", f"{w / rw:.2f}"]
        print(f"| {name} | {' | '.join(cells)} |")


def to_average(bags: list[np.ndarray]) -> list[np.ndarray]:
    return [bag - bag.mean(axis=1, keepdims=True) for bag in bags]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path, nargs="?", help="a prepared cohort; none: the synthetic people alone")
    parser.add_argument("--label", default="C", help="the class of its healthy people")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="synthetic cohorts to average over")
    parser.add_argument("--people", type=int, default=29, help="controls in each of them")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--common-uv", type=float, help="what all electrodes share, in microvolt")
    parser.add_argument("--quick", action="store_true", help="few people and one seed: does it run?")
    arguments = parser.parse_args()
    people = 4 if arguments.quick else arguments.people
    seeds, seconds = (arguments.seeds[:1], 60) if arguments.quick else (arguments.seeds, arguments.seconds)
    extra = {} if arguments.common_uv is None else {"common_uv": arguments.common_uv}
    cohorts = [
        synthetic_people(SynthSettings(subjects=2 * people, seconds=seconds, sfreq=RATE, seed=seed, **extra))
        for seed in seeds
    ]
    most = people if arguments.quick else 10**6
    bags, sfreq = real_people(arguments.cohort, arguments.label, most) if arguments.cohort else ([], RATE)
    print(f"{len(bags)} real people; synthetic: {people} controls, seeds {seeds}")
    for words, prepare in (("as recorded", list), ("to the average reference", to_average)):
        print(f"\n{words}\n")
        synthetic = average([measure(prepare(people_bags), RATE) for people_bags in cohorts])
        print_table(measure(prepare(bags), sfreq) if bags else None, synthetic)


if __name__ == "__main__":
    main()
