"""Which ensemble should be the default? Balanced accuracy of the candidates on long, short and small cohorts.

    python benchmarks/default_rule.py SOURCE [--out FOLDER] [--pairs A-C,F-C] [--record FILE]   # hours; resumes
    python benchmarks/default_rule.py --quick                             # one small condition on the demo's recordings

SOURCE is the BIDS folder `adftd-300s`. Members (`tangent`, `bandpower`, and `bridgemil` and `attention` on
`covariance`) are fitted once per fold; every candidate combines their predictions of the test subjects, either by
probabilities or by logits of equal confidence (divided by their root mean square over the training subjects). Five
folds, five splits; conditions: A vs C, F vs C, three classes and A vs F; whole recordings, their first 60 and 30 s, and
40 subjects. Members and the default are compared with the baselines by the package's test; --record keeps the table,
condition by condition.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.cohort.views import subset
from bridgemil.evaluation.metrics import wilson
from bridgemil.evaluation.statistics import compare
from bridgemil.models import FitCache, LazyBag, Model, fit
from bridgemil.runs import RESULTS_VERSION

NAMES = {"A": "AD", "C": "HC", "F": "FTD"}
PAIRS = {pair: {group: NAMES[group] for group in pair.split("-")} for pair in ("A-C", "F-C", "A-C-F", "A-F")}
MEMBERS = ("bandpower", "tangent", "bridgemil", "attention")
SUBJECTS, FOLDS = 40, 5
DEFAULT, BASELINES = "tangent x 3 + bridgemil", ("bandpower", "tangent")
QUICK = {"stage2.epochs": 2}  # does it still run?
SHOWN = {**{name: name for name in MEMBERS}, DEFAULT: "tangent+bridgemil"}  # in the table of conditions
Fold = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]
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


def members(cohort: Cohort, length: int | None, split: int, folder: Path, few: bool, budget: str) -> Iterator[Fold]:
    """Of each fold the members' logits, training and test rows, and the class numbers."""
    if length is not None:
        kept = {s: list(range(min(length, cohort.records[s].n_windows))) for s in cohort.subjects}
        cohort = subset(cohort, kept)
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
    for fold, (train, test) in enumerate(
        StratifiedKFold(2 if budget == "demo" else FOLDS, shuffle=True, random_state=split).split(subjects, y)
    ):
        file, logits = folder / f"{split}-{fold}.npz", Logits()
        if file.exists():
            logits = dict(np.load(file))
        else:
            for name in MEMBERS:
                short = QUICK if budget == "demo" and name not in BASELINES else {}
                settings = methods.for_cohort(cohort, name, "covariance", budget, short)
                model = fit(cohort, list(subjects[train]), [], settings, cache=cache).model
                values = np.log(np.clip([predicted(model, cohort, s, cache) for s in subjects], 1e-15, 1))
                logits[name] = values - values.mean(axis=1, keepdims=True)
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(file, **logits)
        yield logits, train, test, y


def predicted(model: Model, cohort: Cohort, subject: str, cache: FitCache) -> np.ndarray:
    return model.predict(LazyBag.of_subject(cohort, subject, cache)).probabilities


def scores(folds: list[Fold]) -> dict[str, tuple[float, float, float]]:
    """Balanced accuracy, AUROC and Brier score of each candidate over the test subjects of all folds."""
    found, y = {}, folds[0][3]
    rows = np.concatenate([test for _, _, test, _ in folds])
    for name, combine in CANDIDATES.items():
        p = np.concatenate([combine(logits, train)[test] for logits, train, test, _ in folds])
        area = roc_auc_score(y[rows], p[:, 1] if p.shape[1] == 2 else p, multi_class="ovr")
        brier = ((p - np.eye(p.shape[1])[y[rows]]) ** 2).sum(axis=1).mean()
        found[name] = (balanced_accuracy_score(y[rows], p.argmax(axis=1)), area, brier)
    return found


def predictions(every: list[list[Fold]], name: str) -> pd.DataFrame:
    """Held-out predictions of a candidate over all splits, one row per split and subject."""
    tables = []
    for split, folds in enumerate(every):
        for fold, (logits, train, test, y) in enumerate(folds):
            p = CANDIDATES[name](logits, train)[test]
            columns = {"split": split, "seed": 0, "fold": fold, "subject": test, "label": y[test]}
            tables.append(pd.DataFrame(columns | {"predicted": p.argmax(axis=1)}))
    return pd.concat(tables, ignore_index=True)


def condition(
    every: list[list[Fold]], by_split: list[dict[str, tuple[float, float, float]]]
) -> list[dict[str, object]]:
    """One row per member and of the default: scores over splits, and the comparison with each baseline."""
    tables = {name: predictions(every, name) for name in SHOWN}
    rows = []
    for name, shown in SHOWN.items():
        balanced, area, _ = np.array([found[name] for found in by_split]).T
        correct, n = (tables[name]["label"] == tables[name]["predicted"]).mean(), len(tables[name]) // len(every)
        row = {"method": shown, "subjects": n, "accuracy": correct, "ci95": wilson(correct, n), "auroc": area.mean()}
        row |= {"balanced": balanced.mean(), "balanced_std": balanced.std()}
        for baseline in BASELINES:
            if name not in BASELINES:
                found = compare(tables[name], tables[baseline], (shown, baseline), 1 / (FOLDS - 1))
                row[f"minus {baseline}"] = {
                    "difference": found.difference,
                    "ci95": [found.low, found.high],
                    "p": found.p,
                }
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("default_rule"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--record", type=Path, help="JSON of the table of conditions")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.source is None and not given.quick:
        parser.error("SOURCE is needed")
    with tempfile.TemporaryDirectory() as temporary:
        pairs, parts, budget = (
            {pair: PAIRS[pair] for pair in given.pairs.split(",")},
            (("whole", None), ("60 s", 60), ("30 s", 30), (f"{SUBJECTS} subjects", None)),
            "laptop",
        )
        if given.quick:
            import bridgemil

            given.source, given.out = Path(bridgemil.__file__).parent / "recordings" / "adftd-60s", Path(temporary)
            given.splits, pairs, parts, budget = 1, {"A-C": PAIRS["A-C"]}, (("20 s", 20),), "demo"
        table: dict[str, dict[str, np.ndarray]] = {name: {} for name in CANDIDATES}
        kept = given.record is not None and given.record.exists()
        conditions = json.loads(given.record.read_text())["conditions"] if kept else {}  # others are kept
        for pair, classes in pairs.items():
            folder = given.out / f"{pair}.cohort"
            cohort = prepare(given.source, folder, label="Group", classes=classes, jobs=1, progress=False)
            for part, length in parts:
                where, few = given.out / f"{pair} {part}", part.endswith("subjects")
                every = [list(members(cohort, length, split, where, few, budget)) for split in range(given.splits)]
                by_split = [scores(folds) for folds in every]
                for name in CANDIDATES:
                    table[name][f"{pair} {part}"] = np.mean([each[name] for each in by_split], axis=0)
                conditions[f"{pair}, {part}"] = condition(every, by_split)
                if given.record:
                    record = {"command": "python benchmarks/default_rule.py adftd-300s"}
                    record |= {"results_version": RESULTS_VERSION, "splits": given.splits, "conditions": conditions}
                    given.record.write_text(json.dumps(record, indent=1) + "\n")
    names = list(table["tangent"])
    print(f"mean over {given.splits} split(s) and {len(names)} conditions: {', '.join(names)}")
    print(f"{'':38s}balanced  AUROC  Brier  behind the better baseline at most")
    for name, by_condition in table.items():
        mean = np.mean(list(by_condition.values()), axis=0)
        behind = max(max(table[b][c][0] for b in ("bandpower", "tangent")) - by_condition[c][0] for c in names)
        print(f"{name:38s}{mean[0]:8.3f}{mean[1]:7.3f}{mean[2]:7.3f}{100 * behind:+8.1f} points")


if __name__ == "__main__":
    main()
