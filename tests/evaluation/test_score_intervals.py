"""Intervals of balanced accuracy and AUROC: what a plain loop over draws gives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from bridgemil.evaluation.metrics import wilson
from bridgemil.evaluation.score_intervals import auroc_interval, score_intervals

CLASSES = ["a", "b", "c"]


def predicted(n: int, seeds: int, rng: np.random.Generator) -> pd.DataFrame:
    labels = [CLASSES[i % 3] for i in range(n)]
    tables = []
    for seed in range(seeds):
        p = rng.dirichlet([1, 1, 1], n).round(1) + np.array(
            [[0.3 * (name == label) for name in CLASSES] for label in labels]
        )
        said = [CLASSES[k] for k in p.argmax(axis=1)]
        table = pd.DataFrame({"seed": seed, "subject": [f"s{i}" for i in range(n)], "label": labels, "predicted": said})
        tables.append(
            table.assign(**{f"p_{name}": p[:, k] for k, name in enumerate(CLASSES)}).sample(frac=1, random_state=seed)
        )
    return pd.concat(tables, ignore_index=True)


def test_intervals_are_about_those_of_a_bootstrap_where_scores_are_in_the_middle() -> None:
    table = predicted(90, 2, np.random.default_rng(1))
    seeds = [rows.set_index("subject") for _, rows in table.groupby("seed")]
    order, balanced, auroc = seeds[0].index, [], []
    for drawn in np.random.default_rng(0).integers(0, 90, (400, 90)):
        parts = [seed.loc[order[drawn]] for seed in seeds]
        balanced.append(np.mean([balanced_accuracy_score(part["label"], part["predicted"]) for part in parts]))
        auroc.append(np.mean([roc_auc_score(part["label"] == k, part[f"p_{k}"]) for part in parts for k in CLASSES]))
    found = score_intervals(table, CLASSES)
    assert found["balanced_accuracy"] == pytest.approx(np.quantile(balanced, [0.025, 0.975]), abs=0.025)
    assert found["auroc"] == pytest.approx(np.quantile(auroc, [0.025, 0.975]), abs=0.025)


def test_the_auroc_interval_has_delongs_variance() -> None:
    rng = np.random.default_rng(0)
    y, scores = rng.random(60) < 0.4, rng.normal(size=60)
    scores[y] += 1
    beats = scores[y][:, None] > scores[~y][None]
    variance = beats.mean(1).var(ddof=1) / y.sum() + beats.mean(0).var(ddof=1) / (~y).sum()
    low, high = auroc_interval(np.stack([-scores, scores], axis=1)[None], np.stack([~y, y]))
    area = beats.mean()
    middle = np.log(area / (1 - area))
    half = 1.96 * np.sqrt(variance) / (area * (1 - area))
    assert np.log([low / (1 - low), high / (1 - high)]) == pytest.approx([middle - half, middle + half])


def test_wilsons_interval_is_scipys_and_stays_wide_where_all_are_right() -> None:
    for right, n in ((7, 12), (10, 10), (0, 15)):
        ours, theirs = wilson(right / n, n), binomtest(right, n).proportion_ci(method="wilson")
        assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-4)
    assert wilson(1.0, 10)[0] < 0.75


def test_all_right_is_no_certainty() -> None:
    table = predicted(9, 1, np.random.default_rng(0))
    sure = {f"p_{name}": (table["label"] == name).astype(float) for name in CLASSES}
    found = score_intervals(table.assign(predicted=table["label"], **sure), CLASSES)
    assert found["auroc"] == wilson(1.0, 3)
    low, high = found["balanced_accuracy"]
    assert low == pytest.approx(1 - (1 - wilson(1.0, 3)[0]) / np.sqrt(3))
    assert high == 1
