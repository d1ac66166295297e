"""Clinical metrics: against scikit-learn and by hand, and that no subject chooses its own threshold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bridgemil.errors import BadUse
from bridgemil.evaluation.clinical import (
    ClinicalOptions,
    PerClassMetrics,
    TwoClassMetrics,
    clinical_metrics,
    positive_class,
)
from bridgemil.evaluation.diagnostic_accuracy import (
    OperatingPoint,
    Proportion,
    decision_curve,
    measures,
    precision_recall_curve,
    predictive_values_at,
    ratio_interval,
    roc_curve,
)
from bridgemil.evaluation.metrics import wilson


def held_out(n: int = 40, seeds: int = 1, classes: tuple[str, ...] = ("A", "C"), k: int = 5) -> pd.DataFrame:
    """Predictions of n subjects of each class; probabilities say something of it."""
    rng = np.random.default_rng(0)
    tables = []
    labels = np.repeat(np.arange(len(classes)), n)
    for seed in range(seeds):
        logits = rng.normal(size=(len(labels), len(classes)))
        logits[np.arange(len(labels)), labels] += 1.5
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        table = pd.DataFrame(
            {"seed": seed, "fold": np.arange(len(labels)) % k + 1, "subject": [f"s{i:03d}" for i in range(len(labels))],
             "label": np.array(classes)[labels], "predicted": np.array(classes)[p.argmax(axis=1)]}
        )  # fmt: skip
        tables.append(table.assign(**{f"p_{name}": p[:, i] for i, name in enumerate(classes)}))
    return pd.concat(tables, ignore_index=True)


def two_classes(predictions: pd.DataFrame, **chosen: object) -> TwoClassMetrics:
    chosen["operating_point"] = OperatingPoint.parse(chosen.get("operating_point"))  # type: ignore[arg-type]
    found = clinical_metrics(predictions, ["A", "C"], ClinicalOptions(**chosen))  # type: ignore[arg-type]
    assert isinstance(found, TwoClassMetrics)
    return found


def test_measures_are_those_of_the_confusion_matrix() -> None:
    predictions = held_out()
    counts = pd.crosstab(predictions["label"], predictions["predicted"])
    found = two_classes(predictions).measures
    expected = {
        "sensitivity": (counts.loc["A", "A"], counts.loc["A"].sum()),
        "specificity": (counts.loc["C", "C"], counts.loc["C"].sum()),
        "ppv": (counts.loc["A", "A"], counts["A"].sum()),
        "npv": (counts.loc["C", "C"], counts["C"].sum()),
    }
    for name, (part, n) in expected.items():
        assert found[name].value == pytest.approx(part / n)
        assert (found[name].low, found[name].high) == pytest.approx(wilson(part / n, n))


def test_seeds_count_a_subject_once() -> None:
    one = held_out()
    twice = pd.concat([one, one.assign(seed=1)], ignore_index=True)
    assert two_classes(twice).to_dict() == two_classes(one).to_dict()
    several = held_out(seeds=3)
    each = [two_classes(rows).measures["sensitivity"].value for _, rows in several.groupby("seed")]
    assert two_classes(several).measures["sensitivity"].value == pytest.approx(np.mean(each))
    shuffled = several.sample(frac=1, random_state=1)
    assert two_classes(shuffled).to_dict() == two_classes(several).to_dict()


@pytest.mark.parametrize("rule", ["youden", "sensitivity=.8", "specificity=.8"])
def test_no_subject_has_a_part_in_its_own_threshold(rule: str) -> None:
    predictions = held_out()
    before = two_classes(predictions, operating_point=rule).thresholds.set_index("fold")["threshold"]
    moved = 0
    for fold in range(1, 6):
        here = predictions["fold"] == fold
        changed = predictions.copy()
        changed.loc[here, "label"] = np.where(predictions.loc[here, "label"] == "A", "C", "A")
        changed.loc[here, "p_A"] = 0.123
        after = two_classes(changed, operating_point=rule).thresholds.set_index("fold")["threshold"]
        assert after[fold] == before[fold]
        moved += (after != before).sum()
    assert moved > 3, "the thresholds of the other folds do depend on it"


def test_a_stated_sensitivity_is_reached_by_new_patients() -> None:
    rng = np.random.default_rng(0)
    point, reached = OperatingPoint.parse("sensitivity=.8"), []
    y = np.repeat([True, False], 15)
    for _ in range(2000):
        p = np.where(y, rng.beta(3, 2, len(y)), rng.beta(2, 3, len(y)))
        reached.append((rng.beta(3, 2, 50) >= point.threshold(p, y)).mean())
    assert np.mean(reached) == pytest.approx(13 / 16, abs=0.01)  # the plain quantile reaches 12 / 16


def test_thresholds_by_hand() -> None:
    y = np.array([True] * 9 + [False] * 9)
    p = np.concatenate([np.arange(1, 10) / 10, np.arange(1, 10) / 10 - 0.05])
    assert OperatingPoint.parse("sensitivity=.8").threshold(p, y) == pytest.approx(0.2)  # the 8th of 9 + 1
    above = OperatingPoint.parse("specificity=.8").threshold(p, y)
    assert above > p[~y][7]
    assert above == pytest.approx(0.75)
    assert OperatingPoint.parse("sensitivity=.95").threshold(p, y) == 0  # 9 patients cannot show 95 %
    assert OperatingPoint.parse("specificity=.95").threshold(p, y) > 1
    apart = np.array([0.9, 0.8, 0.3, 0.1])
    assert OperatingPoint.parse("youden").threshold(apart, np.array([True, True, False, False])) == pytest.approx(0.55)


def test_too_few_subjects_for_a_target_are_said() -> None:
    found = two_classes(held_out(10), operating_point="sensitivity=.95")
    assert found.measures["sensitivity"].value == 1
    assert found.measures["specificity"].value == 0
    assert "too few subjects for sensitivity=0.95: in 5 of 5 folds" in str(found.unreached)
    assert found.to_dict()["npv"] == {"value": None, "ci95": [0.0, 1.0]}


def test_predictive_values_at_a_prevalence() -> None:
    one, other = Proportion.of(27, 30), Proportion.of(24, 30)
    ppv, npv = predictive_values_at(0.1, one, other)
    assert ppv.value == pytest.approx(0.1 * 0.9 / (0.1 * 0.9 + 0.9 * 0.2))
    assert npv.value == pytest.approx(0.9 * 0.8 / (0.9 * 0.8 + 0.1 * 0.1))
    assert ppv.low < ppv.value < ppv.high < 0.6
    assert npv.low < npv.value < npv.high
    same, _ = predictive_values_at(0.5, one, other)
    assert same.value == pytest.approx(27 / 33)  # the cohort's own share


def test_the_interval_of_a_ratio_has_ends_where_counts_are_zero() -> None:
    none, some, every = Proportion.of(0, 20), Proportion.of(15, 20), Proportion.of(20, 20)
    value, low, high = ratio_interval(none, some)
    assert value == low == 0
    assert 0 < high < 1
    value, low, high = ratio_interval(some, none)
    assert value == high == np.inf
    assert low > 1
    ppv, _ = predictive_values_at(0.1, some, every)  # no false positive: certain is nothing
    assert ppv.value == ppv.high == 1
    assert ppv.low < 0.7
    nobody, _ = predictive_values_at(0.1, none, every)
    assert np.isnan(nobody.value)
    assert (nobody.low, nobody.high) == (0, 1)


@pytest.mark.parametrize("digits", [6, 1])  # 1: many ties
def test_curves_agree_with_scikit_learn(digits: int) -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score
    from sklearn.metrics import roc_curve as reference

    predictions = held_out(seeds=2)
    seeds = [rows for _, rows in predictions.groupby("seed")]
    y, p = (seeds[0]["label"] == "A").to_numpy(), np.stack([rows["p_A"].round(digits).to_numpy() for rows in seeds])
    assert roc_curve(y, p).area == pytest.approx(np.mean([roc_auc_score(y, row) for row in p]))
    expected = np.mean([average_precision_score(y, row) for row in p])
    assert precision_recall_curve(y, p).area == pytest.approx(expected)
    curve = roc_curve(y, p[:1])
    assert np.trapezoid(curve.y, curve.x) == pytest.approx(curve.area)
    assert (np.diff(curve.x) >= 0).all()
    assert (np.diff(curve.y) >= 0).all()
    if digits == 6:
        points = {(round(a, 9), round(b, 9)) for a, b in zip(curve.x, curve.y, strict=True)}
        assert {(round(a, 9), round(b, 9)) for a, b in zip(*reference(y, p[0])[:2], strict=True) if a} <= points


def test_net_benefit_by_hand() -> None:
    y, p = np.array([True, True, False, False]), np.array([[0.9, 0.3, 0.4, 0.1]])
    curve = decision_curve(y, p)
    at = {round(t, 2): i for i, t in enumerate(curve.threshold)}
    assert curve.net_benefit[at[0.2]] == pytest.approx(2 / 4 - 1 / 4 * 0.25)
    assert curve.net_benefit[at[0.5]] == pytest.approx(1 / 4)
    assert curve.treat_all[at[0.2]] == pytest.approx(0.5 - 0.5 * 0.25)
    assert (curve.low <= curve.net_benefit).all()
    assert (curve.net_benefit <= curve.high).all()
    rarer = decision_curve(y, p, prevalence=0.1)  # odds of .4 become 1 / 9 of themselves: .069
    assert rarer.net_benefit[at[0.05]] == pytest.approx(0.1 * 0.5 - 0.5 * 0.9 * 0.05 / 0.95)


@pytest.mark.parametrize(
    ("classes", "positive"),
    [
        (("A", "C"), "A"), (("H", "MDD"), "MDD"), (("hc", "pd"), "pd"), (("Healthy_Control", "AD"), "AD"),
        (("control", "slowing"), "slowing"), (("CN", "MCI"), "MCI"), (("0", "1"), "1"), (("AD", "Normal"), "AD"),
    ],
)  # fmt: skip
def test_the_class_that_is_not_called_control_is_positive(classes: tuple[str, str], positive: str) -> None:
    name, reason = positive_class(sorted(classes))
    assert name == positive
    assert "interpreted as the controls" in reason


def test_names_that_do_not_tell_are_said() -> None:
    assert positive_class(["AD", "FTD"])[0] == "FTD"
    assert "neither name is known for controls" in positive_class(["AD", "FTD"])[1]
    assert "both names are known for controls" in positive_class(["CN", "HC"])[1]
    assert positive_class(["AD", "FTD"], "AD") == ("AD", "as given")
    with pytest.raises(BadUse, match="must be one of AD, FTD; got 'ad'"):
        positive_class(["AD", "FTD"], "ad")


def test_more_classes_have_sensitivity_and_specificity_each() -> None:
    classes = ("A", "C", "F")
    predictions = held_out(classes=classes, seeds=2)
    found = clinical_metrics(predictions, classes)
    assert isinstance(found, PerClassMetrics)
    row = found.to_dict()["per_class"]["F"]
    own, rest = predictions["label"] == "F", predictions["label"] != "F"
    assert row["sensitivity"]["value"] == pytest.approx((predictions["predicted"][own] == "F").mean())
    assert row["specificity"]["value"] == pytest.approx((predictions["predicted"][rest] != "F").mean())
    assert len(found.table) == 6
    with pytest.raises(BadUse, match="are for two classes; this cohort has 3"):
        clinical_metrics(predictions, classes, ClinicalOptions(prevalence=0.1))


@pytest.mark.parametrize(
    "text", ["sensitivity", "youden=.9", "sensitivity=1", "sensitivity=90", "f1=.5", "specificity=x", ""]
)
def test_operating_points_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(BadUse, match="operating point"):
        OperatingPoint.parse(text)


@pytest.mark.parametrize("prevalence", [0, 1, 10, -0.1, float("nan")])
def test_prevalences_that_cannot_be_are_refused(prevalence: float) -> None:
    with pytest.raises(BadUse, match="prevalence must lie between 0 and 1"):
        ClinicalOptions(prevalence=prevalence)


def test_sensitivity_is_of_the_positive_class() -> None:
    y = np.array([True, True, False, False, False])
    one, other, *_ = measures(y, np.array([1.0, 0.5, 0.0, 0.0, 1.0])).values()
    assert (one.value, other.value) == pytest.approx((0.75, 2 / 3))
    flipped = two_classes(held_out(), positive="C")
    plain = two_classes(held_out())
    assert flipped.measures["sensitivity"] == plain.measures["specificity"]
    assert replace(flipped.options, positive=None) == plain.options
