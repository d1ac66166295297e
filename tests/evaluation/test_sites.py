"""Leaving sites out, and adjusting for them: who is scored, what is seen, and what is recovered."""

import numpy as np
import pytest

import bridgemil
from bridgemil import methods
from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.sites import harmonised

CHANNELS = ["Fz", "Cz", "C3", "C4", "Pz", "O1", "O2", "F3"]
PER_SITE = 24
QUIET = {"baselines": False, "progress": False, "jobs": 1}


def sites_cohort(seed: int = 0, relabel: str = "") -> bridgemil.Cohort:
    """Three sites with different alpha; patients have less of it. ``relabel``: a site with permuted labels."""
    rng, t = np.random.default_rng(seed), np.arange(200) / 200
    bags, labels, sites = [], [], []
    for s, site in enumerate("ABC"):
        for i in range(PER_SITE):
            noise = rng.normal(size=(10, len(CHANNELS), 200)) * 10
            size = (9 if i % 2 else 4) * 2.0**s + rng.normal(size=(1, len(CHANNELS), 1))
            alpha = np.sin(2 * np.pi * 10 * t + rng.uniform(0, 6, (10, len(CHANNELS), 1))) * size
            bags.append((noise + alpha).astype(np.float32))
            labels.append("HC" if i % 2 else "AD")
            sites.append(site)
    if relabel:
        own = [i for i, site in enumerate(sites) if site == relabel]
        for i, label in zip(own, np.random.default_rng(1).permutation([labels[i] for i in own]), strict=True):
            labels[i] = str(label)
    ids = [f"s{i:03d}" for i in range(len(bags))]
    columns = {"site": sites, "age": [50 + i % 30 for i in range(len(bags))]}
    return bridgemil.Cohort.from_arrays(bags, labels, subjects=ids, sfreq=200, channels=CHANNELS, columns=columns)


@pytest.fixture(scope="module")
def cohort() -> bridgemil.Cohort:
    return sites_cohort()


def evaluated(cohort: bridgemil.Cohort, **settings: object) -> Results:
    return bridgemil.evaluate(cohort, "bandpower", leave_out="site", settings=settings, **QUIET)


def test_each_site_is_tested_by_models_of_the_others(cohort: bridgemil.Cohort) -> None:
    results = evaluated(cohort)
    table = results.predictions.merge(results.predictions[["subject"]].assign(site=cohort.column("site")), on="subject")
    assert (table.groupby("fold")["site"].nunique() == 1).all()
    assert list(results.groups["group"]) == ["A", "B", "C"]
    assert results.groups["n"].sum() == len(cohort)
    assert results.to_dict()["groups"][0]["auroc_low"] <= results.groups["auroc"][0]


def test_adjustment_recovers_what_the_sites_differ_in(cohort: bridgemil.Cohort) -> None:
    plain, people = evaluated(cohort), evaluated(cohort, site_adjust="people")
    controls = evaluated(cohort, site_adjust="controls", site_controls=6)
    balanced = [float(r.summary["balanced_accuracy"].iloc[0]) for r in (plain, people, controls)]
    assert balanced[0] < 0.8 < 0.9 < min(balanced[1:])
    assert "Transductive" in people.adjustment
    assert "Transductive" not in controls.adjustment
    assert "not scored" in controls.adjustment


def test_controls_set_aside_are_never_scored(cohort: bridgemil.Cohort) -> None:
    settings = methods.for_cohort(cohort, "bandpower", changes={"site_adjust": "controls", "site_controls": 6})
    plan = FoldPlan.leave_out(cohort.subjects, cohort.column("site"), "site")
    scored = set()
    for fold in plan.cv_folds(selects=False):
        made = harmonised(fold, cohort, settings)
        aside = set(fold.test) - set(made.test)
        site = plan.names[fold.fold - 1]
        assert set(made.sites[site]) == aside
        assert len(aside) == 6
        assert {cohort.records[s].label for s in aside} == {"HC"}
        assert not aside & {*made.train, *made.validation}
        for other, known_by in made.sites.items():
            assert other == site or set(known_by) <= set(made.train)
        scored |= set(made.test)
    results = evaluated(cohort, site_adjust="controls", site_controls=6)
    assert set(results.predictions["subject"]) == scored


@pytest.mark.parametrize("settings", [{}, {"site_adjust": "people"}, {"adjust": ("age",)}])
def test_labels_of_the_test_site_change_no_prediction_of_it(cohort: bridgemil.Cohort, settings: dict) -> None:
    noisy = sites_cohort(relabel="B")
    before, after = (evaluated(each, **settings).predictions for each in (cohort, noisy))
    fold = before["fold"] == 2
    assert (before[fold]["label"] != after[fold]["label"]).any()
    np.testing.assert_array_equal(before[fold]["p_AD"], after[fold]["p_AD"])
    assert (before[~fold]["p_AD"] != after[~fold]["p_AD"]).any()  # they do train the other folds' models


def test_the_ensemble_and_its_baselines_score_the_same_subjects(cohort: bridgemil.Cohort) -> None:
    settings = {"site_adjust": "controls", "site_controls": 6}
    results = bridgemil.evaluate(cohort, "tangent", leave_out="site", settings=settings, **{**QUIET, "baselines": True})
    assert results.baselines["bandpower"].settings.site_adjust == "controls"
    assert results.comparisons["bandpower"].sentence


def test_a_covariate_is_removed_by_its_effect_on_training_controls() -> None:
    rng, t = np.random.default_rng(0), np.arange(200) / 200
    ages = [*range(40, 80), *range(40, 80)]
    labels = ["AD" if age + rng.normal() * 10 > 60 else "HC" for age in ages]  # only age tells them apart
    phases = [rng.uniform(0, 6, (10, 8, 1)) for _ in ages]
    bags = [
        (10 * rng.normal(size=(10, 8, 200)) + np.exp(age / 40) * np.sin(2 * np.pi * 10 * t + phase)).astype(np.float32)
        for age, phase in zip(ages, phases, strict=True)
    ]
    cohort = bridgemil.Cohort.from_arrays(bags, labels, sfreq=200, channels=CHANNELS, columns={"age": ages}, folds=5)
    before, after = (
        float(bridgemil.evaluate(cohort, "bandpower", adjust=columns, **QUIET).summary["auroc"].iloc[0])
        for columns in ((), ("age",))
    )
    assert before > 0.75
    assert after < 0.65


def test_wrong_use_is_refused(cohort: bridgemil.Cohort) -> None:
    with pytest.raises(BadData, match="A: 12 HC, of which 15 would be set aside"):
        evaluated(cohort, site_adjust="controls")
    with pytest.raises(BadUse, match="eegnet has no fixed features"):
        bridgemil.evaluate(cohort, "attention", "eegnet", settings={"site_adjust": "people"}, **QUIET)
    with pytest.raises(BadUse, match="--leave-out decides the folds"):
        bridgemil.evaluate(cohort, "bandpower", leave_out="site", folds=3, **QUIET)
    with pytest.raises(BadUse, match="site"):
        bridgemil.evaluate(cohort, "bandpower", leave_out="hospital", **QUIET)
