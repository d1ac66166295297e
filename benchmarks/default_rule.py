"""Which ensemble should be the default? Balanced accuracy of the candidates on long, short and small cohorts.

    python benchmarks/default_rule.py SOURCE [--out FOLDER] [--splits 5]   # two hours on one core; resumes
    python benchmarks/default_rule.py --quick                             # one small condition on the demo's recordings

SOURCE is the BIDS folder `adftd-300s`. Members (the two regressions of `tangent`, `bandpower`, and `bridgemil` on
`covariance`) are fitted once per fold; every candidate combines their predictions of the test subjects, either by
probabilities or by logits of equal confidence (divided by their root mean square over the training subjects). Five
folds; conditions: A vs C, F vs C and three classes; whole recordings, their first 30 s, and 40 subjects.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.subset import CohortSubset
from bridgemil.models import FitCache, LazyBag, Model, fit

NAMES = {"A": "AD", "C": "HC", "F": "FTD"}
PAIRS = {pair: {group: NAMES[group] for group in pair.split("-")} for pair in ("A-C", "F-C", "A-C-F", "A-F")}
MEMBERS = ("bandpower", "tangent", "bridgemil", "attention")
SUBJECTS = 40
Logits = dict[str, np.ndarray]  # by member, of all subjects of the condition (centred): subjects x classes


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def by_probability(**weights: float) -> Callable[[Logits, np.ndarray], np.ndarray]:
    return lambda logits, train: sum(w * softmax(logits[name]) for name, w in weights.items()) / sum(weights.values())


def equal_confidence(**weights: float) -> Callable[[Logits, np.ndarray], np.ndarray]:
    def combine(logits: Logits, train: np.ndarray) -> np.ndarray:
        scales = {name: np.sqrt((logits[name][train] ** 2).mean()) for name in weights}
        total = sum(w * logits[name] / scales[name] for name, w in weights.items())
        return softmax(total / sum(weights.values()) * min(scales.values()))

    return combine


CANDIDATES = {
    "bandpower": by_probability(bandpower=1),
    "tangent": by_probability(tangent=1),
    "bridgemil": by_probability(bridgemil=1),
    "attention": by_probability(attention=1),
    **{f"tangent x {w} + bridgemil": by_probability(tangent=w, bridgemil=1) for w in (1, 2, 3, 4, 6)},
    **{f"the same, equal confidence, x {w}": equal_confidence(tangent=w, bridgemil=1) for w in (1, 2, 3, 4, 6)},
    "tangent x 2 + bandpower + bridgemil": by_probability(tangent=2, bandpower=1, bridgemil=1),
    "the same, equal confidence": equal_confidence(tangent=2, bandpower=1, bridgemil=1),
}


def members(cohort: Cohort, length: int | None, split: int, folder: Path, few: bool, budget: str) -> Iterator[
    tuple[Logits, np.ndarray, np.ndarray, np.ndarray]
]:  # fmt: skip
    """Of each fold the members' logits, training and test rows, and the class numbers."""
    if length is not None:
        kept = {s: list(range(min(length, cohort.records[s].n_windows))) for s in cohort.subjects}
        cohort = CohortSubset(cohort, kept)
    y, subjects = np.array(cohort.y), np.array(cohort.subjects)
    if few:
        rng, k = np.random.default_rng(100 + split), len(cohort.classes)
        sizes = [SUBJECTS // k + (i < SUBJECTS % k) for i in range(k)]
        chosen = [
            rng.choice(np.flatnonzero(y == i), min(n, (y == i).sum()), replace=False) for i, n in enumerate(sizes)
        ]
        rows = np.sort(np.concatenate(chosen))
        y, subjects = y[rows], subjects[rows]
    cache = FitCache()
    for fold, (train, test) in enumerate(StratifiedKFold(5, shuffle=True, random_state=split).split(subjects, y)):
        file, logits = folder / f"{split}-{fold}.npz", Logits()
        if file.exists():
            logits = dict(np.load(file))
        else:
            for name in MEMBERS:
                settings = methods.for_cohort(cohort, name, "covariance", budget)
                model = fit(cohort, list(subjects[train]), [], settings, cache=cache).model
                values = np.log(np.clip([predicted(model, cohort, s, cache) for s in subjects], 1e-15, 1))
                logits[name] = values - values.mean(axis=1, keepdims=True)
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(file, **logits)
        yield logits, train, test, y


def predicted(model: Model, cohort: Cohort, subject: str, cache: FitCache) -> np.ndarray:
    return model.predict(LazyBag.of_subject(cohort, subject, cache)).probabilities


def scores(folds: list[tuple[Logits, np.ndarray, np.ndarray, np.ndarray]]) -> dict[str, tuple[float, float, float]]:
    """Balanced accuracy, AUROC and Brier score of each candidate over the test subjects of all folds."""
    found, y = {}, folds[0][3]
    rows = np.concatenate([test for _, _, test, _ in folds])
    for name, combine in CANDIDATES.items():
        p = np.concatenate([combine(logits, train)[test] for logits, train, test, _ in folds])
        area = roc_auc_score(y[rows], p[:, 1] if p.shape[1] == 2 else p, multi_class="ovr")
        brier = ((p - np.eye(p.shape[1])[y[rows]]) ** 2).sum(axis=1).mean()
        found[name] = (balanced_accuracy_score(y[rows], p.argmax(axis=1)), area, brier)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("default_rule"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.source is None and not given.quick:
        parser.error("SOURCE is needed")
    with tempfile.TemporaryDirectory() as temporary:
        pairs, parts, budget = (
            PAIRS,
            (("whole", None), ("60 s", 60), ("30 s", 30), (f"{SUBJECTS} subjects", None)),
            "laptop",
        )
        if given.quick:
            import bridgemil

            given.source, given.out = Path(bridgemil.__file__).parent / "recordings" / "adftd-60s", Path(temporary)
            given.splits, pairs, parts, budget = 1, {"A-C": PAIRS["A-C"]}, (("20 s", 20),), "demo"
        table: dict[str, dict[str, np.ndarray]] = {name: {} for name in CANDIDATES}
        for pair, classes in pairs.items():
            folder = given.out / f"{pair}.cohort"
            cohort = prepare(given.source, folder, label="Group", classes=classes, jobs=1, progress=False)
            for part, length in parts:
                every = []
                for split in range(given.splits):
                    where = given.out / f"{pair} {part}"
                    folds = members(cohort, length, split, where, part.endswith("subjects"), budget)
                    every.append(scores(list(folds)))
                for name in CANDIDATES:
                    table[name][f"{pair} {part}"] = np.mean([each[name] for each in every], axis=0)
    conditions = list(table["tangent"])
    print(f"mean over {given.splits} split(s) and {len(conditions)} conditions: {', '.join(conditions)}")
    print(f"{'':38s}balanced  AUROC  Brier  behind the better baseline at most")
    for name, by_condition in table.items():
        mean = np.mean(list(by_condition.values()), axis=0)
        behind = max(max(table[b][c][0] for b in ("bandpower", "tangent")) - by_condition[c][0] for c in conditions)
        print(f"{name:38s}{mean[0]:8.3f}{mean[1]:7.3f}{mean[2]:7.3f}{100 * behind:+8.1f} points")


if __name__ == "__main__":
    main()
