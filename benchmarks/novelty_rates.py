"""How often held-out subjects of the same cohort are called out of distribution, by the length of their recording.

    python benchmarks/novelty_rates.py [SOURCE] [--quick]

SOURCE is a BIDS folder with the label column `Group` (by default one minute of 65 subjects, in the package; the table
in docs/predict.md is of `adftd-300s`, Alzheimer's disease and healthy). Each subject is left out of the reference once;
eight random segments of each length are tested. `whole recordings` is the percentile among distances of whole
recordings, whatever the length: what the percentile would be without a reference for each length.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from bridgemil.bundle.novelty import NoveltyModel, window_features
from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.signal import CLINICAL_BANDS, held_bands

SHORT = Path(__file__).parents[1] / "src" / "bridgemil" / "recordings" / "adftd-60s"
CLASSES = {"A": "Alzheimer", "C": "healthy"}
LENGTHS, SEGMENTS = (10, 30, 60, 300), 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path, nargs="?", default=SHORT)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cohort = prepare(given.source, Path(folder) / "c", label="Group", classes=CLASSES, jobs=1, progress=False)
        bands, _ = held_bands(CLINICAL_BANDS, cohort.signal)
        windows = [window_features(cohort.windows(who), cohort.sfreq, bands) for who in cohort.subjects]
    segments, counts = [each.segments() for each in windows], [each.n for each in windows]
    found: dict[int, list[tuple[float, float]]] = {n: [] for n in LENGTHS if n <= max(counts)}
    rng = np.random.default_rng(0)
    for i in range(0, len(windows), 10 if given.quick else 1):
        rest = [j for j in range(len(windows)) if j != i]
        model = NoveltyModel.fit([segments[j] for j in rest], [counts[j] for j in rest])
        for length, percentiles in found.items():
            n = min(length, counts[i])
            for start in rng.integers(0, counts[i] - n + 1, SEGMENTS if n < counts[i] else 1):
                features = windows[i].part(slice(start, start + n)).vector
                percentiles.append((model.percentile(features, n), model.percentile(features, int(model.lengths[-1]))))
    print(f"{len(windows)} subjects, {min(counts)} to {max(counts)} windows; share above a percentile")
    print("| windows | matching length: > 95 | > 99 | whole recordings: > 95 | > 99 |\n|---|---|---|---|---|")
    for length, percentiles in found.items():
        own, whole = np.array(percentiles).T
        shares = [f"{100 * np.mean(values > limit):.1f} %" for values in (own, whole) for limit in (95, 99)]
        print(f"| {length} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main()
