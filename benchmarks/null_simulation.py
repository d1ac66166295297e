"""Type I error of every verdict between methods that the package prints, and coverage of every interval of a score.

Three learners that are equally good by construction are cross-validated on synthetic subjects: the same ridge
classifier on shared features and on features of its own, all features alike. Every verdict between them is a type I
error, and an interval of their difference must cover zero. The statistics are those of the package
(``bridgemil.evaluation``).

    python benchmarks/null_simulation.py            # the tables of docs/guarantees.md
    python benchmarks/null_simulation.py --quick    # 150 data sets of one design
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from bridgemil.evaluation.metrics import (
    auroc_interval,
    balanced_accuracy_interval,
    bootstrap,
    chance,
    effective_size,
    wilson,
)
from bridgemil.evaluation.statistics import LEVEL, adjusted_interval, holm, paired_test, sign_flip_test

Floats = NDArray[np.float64]
LEARNERS, SHARED, OWN, RIDGE = 3, 10, 8, 10.0
SMALLER = 0.45  # share of the smaller class
SPLITS = 5
BATCH = 100  # data sets at a time
MODERATE, HIGH = 0.2, 0.45  # effect on every feature, in standard deviations: accuracy about .7 and .95
SIZES, FOLDS = (30, 65, 90, 200), (5, 10)


@dataclass(frozen=True)
class Design:
    """n subjects, k folds; ``spared`` folds do not train: the test fold, and the validation fold where one selects."""

    n: int
    k: int
    spared: int
    effect: float
    unequal: bool = False  # the last learner has the shared features only, and is worse

    @property
    def labels(self) -> Floats:
        """+1 and -1, (n)."""
        return np.where(np.arange(self.n) < round(SMALLER * self.n), 1.0, -1.0)

    def folds(self, split: int) -> NDArray[np.int64]:
        """The fold of each subject, stratified, (n)."""
        rng, fold = np.random.default_rng([split, self.n, self.k]), np.empty(self.n, dtype=np.int64)
        for name in (1.0, -1.0):
            members = rng.permutation(np.flatnonzero(self.labels == name))
            for i, part in enumerate(np.array_split(members, self.k)):
                fold[part] = i
        return fold


def cross_validated(design: Design, n_sets: int, seed: int, splits: int) -> tuple[Floats, Floats]:
    """Held-out decision values (sets, splits, learners, subjects), and the accuracy of the models (sets, learners).

    The models are those of the first split; their accuracy on the population is known, as classes are normal.
    """
    rng, y = np.random.default_rng([seed, design.n, design.k]), design.labels
    x = rng.normal(size=(n_sets, design.n, SHARED + LEARNERS * OWN)) + design.effect * y[:, None]
    values, known = np.empty((n_sets, splits, LEARNERS, design.n)), np.zeros((n_sets, LEARNERS))
    for split in range(splits):
        fold = design.folds(split)
        for test in range(design.k):
            held_out, train = fold == test, ~np.isin(fold, (test + np.arange(design.spared)) % design.k)
            for learner in range(LEARNERS):
                start = SHARED + learner * OWN
                worse = design.unequal and learner == LEARNERS - 1
                columns = np.r_[:SHARED, start : start + (0 if worse else OWN)]
                centre, slope = _fitted(x[:, train][:, :, columns], y[train])
                decided = np.einsum("sni,si->sn", x[:, held_out][:, :, columns] - centre[:, None], slope)
                values[:, split, learner, held_out] = decided
                if split == 0:
                    known[:, learner] += _accuracy(design, centre, slope, y[held_out]).sum(axis=1) / design.n
    return values, known


def _fitted(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """A ridge classifier, balanced between the classes: its centre and slope, (sets, features) each."""
    centre = (x[:, y > 0].mean(axis=1) + x[:, y < 0].mean(axis=1)) / 2
    weight = np.where(y > 0, 0.5 / (y > 0).mean(), 0.5 / (y < 0).mean())
    inner = x - centre[:, None]
    weighted = inner * weight[:, None]
    gram = np.swapaxes(weighted, 1, 2) @ inner + RIDGE * np.eye(x.shape[2])
    return centre, np.linalg.solve(gram, (weighted * y[:, None]).sum(axis=1)[:, :, None])[:, :, 0]


def _accuracy(design: Design, centre: Floats, slope: Floats, y: Floats) -> Floats:
    """The chance that a new subject of each label is correctly classified, (sets, labels)."""
    scale = np.linalg.norm(slope, axis=1)
    return np.stack([ndtr(((design.effect - name * centre) * slope).sum(axis=1) / scale) for name in y], axis=1)


def verdicts(design: Design, values: Floats) -> Iterator[dict[str, float]]:
    """Of each data set, which verdicts called a difference."""
    correct, pairs = (np.sign(values) == design.labels).astype(float), list(combinations(range(LEARNERS), 2))
    for of_set in correct:
        found: dict[str, float] = {}
        gain = of_set[:, 0] - of_set[:, 1]
        for name, n_splits in (("1 split", 1), (f"{SPLITS} splits", SPLITS)):
            p = [_tested(design, of_set, pair, n_splits)[3] for pair in pairs]
            own = gain[:n_splits].mean(axis=0)
            low, high = adjusted_interval(own)
            found[f"comparison, {name}"] = p[0] < LEVEL
            found[f"Holm family, {name}"] = min(holm(p)) < LEVEL
            found[f"sign-flip alone, {name}"] = sign_flip_test(own) < LEVEL
            found[f"interval over subjects alone, {name}"] = not low <= 0 <= high
        found["ahead on all splits"] = abs(np.sign(gain.mean(axis=1)).sum()) == SPLITS
        yield found


def _tested(design: Design, correct: Floats, pair: tuple[int, int], splits: int) -> tuple[float, float, float, float]:
    """The package's comparison of two learners of one data set over its first splits."""
    folds = np.concatenate([split * design.k + design.folds(split) for split in range(splits)])
    gain = (correct[:splits, pair[0]] - correct[:splits, pair[1]]).ravel()
    return paired_test(gain, np.tile(np.arange(design.n), splits), folds, 1 / (design.k - design.spared))


def above_chance(design: Design, values: Floats) -> Iterator[dict[str, float]]:
    """Of each data set without any effect, whether accuracy is called better than chance."""
    level = chance([str(label) for label in design.labels])[0]
    for correct in (np.sign(values[:, 0, 0]) == design.labels).astype(float):
        yield {"better than chance": wilson(float(correct.mean()), design.n)[0] > level}


def coverage(design: Design, values: Floats, known: Floats) -> Iterator[dict[str, float]]:
    """Of each data set, which intervals cover the expected score; ``known``: the accuracy of these very models."""
    members = np.stack([design.labels < 0, design.labels > 0])
    correct = (np.sign(values) == design.labels).astype(float)
    p = np.stack([-values, values], axis=-1)
    expected = {"accuracy": correct[:, :, 0].mean()}
    expected["difference"] = expected["accuracy"] - correct[:, :, -1].mean()
    areas = np.array([_auroc(of_set, members[1]) for of_set in values[:, 0, 0]])
    expected["balanced accuracy"] = np.mean([correct[:, :, 0][..., own].mean() for own in members])
    expected["AUROC"] = areas.mean()
    for i, of_set in enumerate(correct):
        once, often = of_set[0, 0], of_set[:, 0].mean(axis=0)
        accuracy = wilson(float(once.mean()), design.n)
        yield {
            "expected accuracy": expected["accuracy"],
            "accuracy, of these models": _inside(accuracy, float(known[i, 0])),
            "accuracy": _inside(accuracy, expected["accuracy"]),
            f"accuracy, {SPLITS} splits": _inside(
                wilson(float(often.mean()), effective_size(often, SPLITS)), expected["accuracy"]
            ),
            "accuracy, bootstrap": _inside(bootstrap(once), expected["accuracy"]),
            "balanced accuracy": _inside(balanced_accuracy_interval(once, members), expected["balanced accuracy"]),
            "AUROC": _inside(auroc_interval(p[i, :1, 0], members), expected["AUROC"]),
            "expected difference": expected["difference"],
        } | {
            f"difference, {count} split{'s' * (count > 1)}": _inside(
                _tested(design, of_set, (0, LEARNERS - 1), count)[1:3], expected["difference"]
            )
            for count in (1, SPLITS)
        }


def _auroc(scores: Floats, positive: NDArray[np.bool_]) -> float:
    return float((scores[positive][:, None] > scores[~positive][None]).mean())


def _inside(interval: tuple[float, float], value: float) -> float:
    return float(interval[0] - 1e-12 <= value <= interval[1] + 1e-12)


def batches(design: Design, n_sets: int, splits: int) -> Iterator[tuple[Floats, Floats]]:
    """The data sets of a design, some at a time."""
    for seed, start in enumerate(range(0, n_sets, BATCH)):
        yield cross_validated(design, min(BATCH, n_sets - start), seed, splits)


def rates(rows: list[dict[str, float]]) -> dict[str, float]:
    """Means."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def type_one_errors(designs: list[Design], n_sets: int) -> list[dict[str, float]]:
    """A row for each design, printed as it comes."""
    table = []
    for design in designs:
        rows = [row for values, _ in batches(design, n_sets, SPLITS) for row in verdicts(design, values)]
        null = Design(design.n, design.k, design.spared, 0.0)
        guessed = [row for values, _ in batches(null, n_sets, 1) for row in above_chance(null, values)]
        table.append(rates(rows) | rates(guessed))
        _print_row([str(design.n), str(design.k), f"k-{design.spared}"], table[-1], first=len(table) == 1, digits=1)
    return table


def coverages(designs: list[Design], n_sets: int) -> list[dict[str, float]]:
    """A row for each design, printed as it comes."""
    table = []
    for design in designs:
        parts = list(batches(design, n_sets, SPLITS))
        values, known = (np.concatenate(several) for several in zip(*parts, strict=True))
        table.append(rates(list(coverage(design, values, known))))
        _print_row([str(design.n), str(design.k), f"k-{design.spared}"], table[-1], first=len(table) == 1, digits=1)
    return table


def _print_row(names: list[str], found: dict[str, float], first: bool, digits: int) -> None:
    if first:
        header = ["n", "k", "training folds", *found]
        print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header), flush=True)
    print("| " + " | ".join([*names, *(f"{100 * value:.{digits}f}" for value in found.values())]) + " |", flush=True)


def main() -> None:
    """Print both tables, in percent."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sets", type=int, default=1000, help="data sets per design")
    given = parser.parse_args()
    n_sets = 150 if given.quick else given.sets
    sizes, folds, spared = ((65,), (5,), (1,)) if given.quick else (SIZES, FOLDS, (1, 2))
    error = 100 * (LEVEL * (1 - LEVEL) / n_sets) ** 0.5
    print(f"{n_sets} data sets per design; Monte Carlo standard error at 5 %: {error:.1f} points. All in percent.")
    type_one_errors([Design(n, k, s, MODERATE) for s in spared for k in folds for n in sizes], n_sets)
    coverages([Design(n, folds[-1], 1, effect, unequal=True) for effect in (MODERATE, HIGH) for n in sizes], n_sets)


if __name__ == "__main__":
    main()
