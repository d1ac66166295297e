"""Do prediction sets hold the true class as often as stated, in every class?

    python benchmarks/conformal_coverage.py [RUNS] [--cohort COHORT] [--quick]

Two measurements. Of finished runs in the folder RUNS (`bridgemil evaluate COHORT --split-seed 0 --out RUNS`, and so on
for other split seeds): each held-out subject gets its set from the scores of the other folds. And of new subjects, with
`tangent`, over five splits of COHORT (by default one minute of 65 subjects, in the package): ten folds are held out in
turn, a bundle is made of the others in ten folds of their own, and the held-out fold is predicted by the mean of its
ten models, as `predict` does.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bridgemil import baselines
from bridgemil.bundle.conformal import PredictionSets, cross_coverage
from bridgemil.bundle.training import held_out
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import SubjectKFold
from bridgemil.cohort.prepare import prepare
from bridgemil.report.benchmark import build
from bridgemil.runs import find_store

SHORT = Path(__file__).parents[1] / "src" / "bridgemil" / "recordings" / "adftd-60s"
CLASSES = {"A": "Alzheimer", "C": "healthy"}
COVERAGES = (0.8, 0.9, 0.95)
FOLDS = 10


def show(title: str, coverage: float, measured: Sequence[dict[str, Any]]) -> None:
    """One row: means over splits, and their range where it is of interest."""

    def mean(name: str) -> str:
        return f"{100 * np.mean([one[name] for one in measured]):.1f}"

    shares = []
    for name in measured[0]["by_class"]:
        values = [100 * one["by_class"][name] for one in measured]
        shares.append(f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})")
    print(f"| {title} | {100 * coverage:g} | {mean('coverage')} | {' | '.join(shares)} | "
          f"{mean('one_class')} | {mean('several')} | {mean('none')} |")  # fmt: skip


def of_runs(folder: Path) -> list[tuple[str, list[Any]]]:
    """By method and cohort the held-out predictions of each split."""
    found: dict[str, list[Any]] = {}
    for cell in build(find_store(folder)).cells:
        if not cell.averaged and cell.results.seeds == 1:
            found.setdefault(f"{cell.label}, held out", []).append((held_out(cell.results), cell.results.classes))
    return list(found.items())


def nested(cohort: Cohort, splits: int, outer: int) -> list[list[tuple[Any, Any]]]:
    """Of each split, for every subject: its probabilities by the models of the others, and these others' sets."""
    tangent = baselines.create("tangent", {}, cohort.signal)
    x = np.stack([tangent.features(cohort.windows(who)) for who in cohort.subjects])
    y, names = cohort.y, cohort.subjects
    found = []
    for seed in range(splits):
        rows = []
        for test in SubjectKFold(FOLDS, seed).plan(names, cohort.labels).folds[:outer]:
            here = np.isin(names, test)
            train = np.flatnonzero(~here)
            inner = SubjectKFold(FOLDS, 0).plan([names[i] for i in train], [cohort.labels[i] for i in train])
            p, new = np.zeros((len(train), len(cohort.classes))), []
            for fold in inner.folds:
                out = np.isin([names[i] for i in train], fold)
                fitted = tangent.fit(x[train[~out]], y[train[~out]], len(cohort.classes), 0)
                p[out] = fitted.probabilities(x[train[out]])
                new.append(fitted.probabilities(x[here]))
            sets = PredictionSets.fit(p, y[train], cohort.classes)
            rows += [(sets, own, int(k)) for own, k in zip(np.mean(new, axis=0), y[here], strict=True)]
        found.append(rows)
    return found


def coverage_of(rows: Sequence[tuple[PredictionSets, Any, int]], classes: Sequence[str], coverage: float) -> Any:
    """As ``cross_coverage`` gives it."""
    sets = [made.at(coverage)(p) for made, p, _ in rows]
    y, size = np.array([k for *_, k in rows]), np.array([len(own) for own in sets])
    hit = np.array([classes[k] in own for k, own in zip(y, sets, strict=True)])
    by_class = {name: hit[y == k].mean() for k, name in enumerate(classes) if (y == k).any()}
    parts = {"one_class": size == 1, "several": size > 1, "none": size == 0}
    return {"coverage": hit.mean(), "by_class": by_class} | {name: own.mean() for name, own in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path, nargs="?")
    parser.add_argument("--cohort", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        how: dict[str, Any] = {"label": "Group", "classes": CLASSES, "jobs": 1, "progress": False}
        cohort = Cohort.open(given.cohort) if given.cohort else prepare(SHORT, Path(folder) / "cohort", **how)
        print(f"| | stated, % | coverage | {' | '.join(cohort.classes)} | one class | several | none |")
        print("|---" * (6 + len(cohort.classes)) + "|")
        for title, results in of_runs(given.runs) if given.runs else []:
            for coverage in COVERAGES:
                show(title, coverage, [cross_coverage(*held, classes, coverage) for held, classes in results])
        splits = nested(cohort, *((1, 3) if given.quick else (5, FOLDS)))
        for coverage in COVERAGES:
            show("tangent, new subjects", coverage, [coverage_of(rows, cohort.classes, coverage) for rows in splits])


if __name__ == "__main__":
    main()
