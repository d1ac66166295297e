"""Leaving sites out, and adjusting for them: who is scored, what is seen, and what is recovered."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bridgemil
from bridgemil import methods
from bridgemil.audit import audit
from bridgemil.cohort.folds import FoldPlan
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.sites import harmonised
from bridgemil.report.benchmark import build
from bridgemil.report.files import markdown, sites_table
from bridgemil.report.held_out import find
from bridgemil.report.pages.results import report_page
from bridgemil.report.tables import sites
from bridgemil.runs import RESULTS_VERSION, RunStore, stage1_identity
from bridgemil.storage.artifact import digest

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


def test_a_group_without_which_a_class_is_untrainable_is_named(cohort: bridgemil.Cohort) -> None:
    labels = ["HC" if site == "B" else label for label, site in zip(cohort.labels, cohort.column("site"), strict=True)]
    sites = ["B" if site == "B" else "A" for site in cohort.column("site")]
    bags = [cohort.windows(subject) for subject in cohort.subjects]
    two = bridgemil.Cohort.from_arrays(bags, labels, sfreq=200, channels=CHANNELS, columns={"site": sites})
    with pytest.raises(BadData, match="without site A there is no AD to train on"):
        evaluated(two)


def with_ad_at(cohort: bridgemil.Cohort, *sites: str) -> bridgemil.Cohort:
    """Every other site has controls only."""
    pairs = list(zip(cohort.subjects, cohort.labels, cohort.column("site"), strict=True))
    labels = [label if site in sites else "HC" for _, label, site in pairs]
    bags, columns = [cohort.windows(subject) for subject, _, _ in pairs], {"site": cohort.column("site")}
    return bridgemil.Cohort.from_arrays(bags, labels, cohort.subjects, 200, CHANNELS, columns=columns)


TUNE = {"tune": {"baseline.classifier": ["logistic", "extra_trees"]}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"leave_out": "site"} | TUNE, "without site A, B there is no AD to train on; .*at 3 values.*leave --tune out"),
        ({"leave_out": "site", "method": "attention", "backbone": "covariance", "recipe": "paper", "budget": "demo"},
         "without site A, B there is no AD to train on; .*at 3 values of site or more: .* select no epoch"),
        ({"split": "site"} | TUNE, "without site A, B there is no AD .*in 3 folds or more: leave --tune"),
    ],
)  # fmt: skip
def test_a_class_that_any_inner_fold_would_lack_is_named_before_training(
    options: dict, words: str, cohort: bridgemil.Cohort, tmp_path: Path
) -> None:
    two = with_ad_at(cohort, "A", "B")
    if "split" in options:
        plan = FoldPlan.leave_out(two.subjects, two.column("site"), "site")
        options |= {"split": replace(plan, kind="groups", names=())}
    with pytest.raises(BadData, match=words):
        bridgemil.evaluate(two, **({"method": "bandpower"} | options), out=tmp_path / "runs", **QUIET)
    assert not (tmp_path / "runs").exists()


def test_reports_hold_every_site_the_adjustment_and_what_scores_follow(
    cohort: bridgemil.Cohort, tmp_path: Path
) -> None:
    saved, runs = cohort.save(tmp_path / "abc.cohort"), tmp_path / "runs"
    how = {"leave_out": "site", "out": runs, **QUIET}
    bridgemil.evaluate(saved, "bandpower", **how)
    bridgemil.evaluate(saved, "bandpower", **how, settings={"site_adjust": "people"})
    controls = bridgemil.evaluate(saved, "bandpower", **how, settings={"site_adjust": "controls", "site_controls": 6})
    bridgemil.evaluate(saved, "bandpower", **how, adjust=("age",))
    report = build(RunStore(runs))
    assert len(report.cells) == 4
    assert sorted(len(cell.results.predictions) for cell in report.cells) == [54, 72, 72, 72]
    text, page = markdown(report), report_page(report)
    assert set(sites_table(report)["group"]) == {"A", "B", "C"}
    for written in (text, page):
        assert "Transductive: a left-out site was adjusted by its own unlabelled test subjects." in written
        assert "6 of its controls, who were set aside and not scored" in written
        assert written.count("each site tested by models of the others") == 4
        assert "how scores follow the covariates" in written
        assert "score, unadjusted" in written
    assert "set aside</span>" in page
    assert "All subjects of one site (A, B, and C) were the test set together" in page
    found = {finding.name: finding for finding in audit(saved, runs, sample=20).findings}
    assert {found[name].status for name in ("provenance", "recomputed", "run_subjects")} == {"PASS"}
    held = find(RunStore(runs), controls.predictions["subject"][0], run=controls.runs[0])
    probabilities = held.model().predict(held.person.bag).probabilities
    np.testing.assert_allclose(probabilities[0], controls.predictions["p_AD"][0], atol=1e-6)


def test_a_stage_1_encoder_is_of_its_adjustment_and_no_other_changes(cohort: bridgemil.Cohort) -> None:
    plan = FoldPlan.leave_out(cohort.subjects, cohort.column("site"), "site")

    def identity(**changes: object) -> str | None:
        settings = methods.for_cohort(cohort, "bridgemil", "covariance", "demo", changes)
        fold = plan.cv_folds(settings.selects)[0]
        subjects = harmonised(fold, cohort, settings) if settings.harmonises else fold
        return stage1_identity(settings, cohort.hash, subjects, 0)

    age, people = {"adjust": ("age",)}, {"site_adjust": "people"}
    own = [age, age | {"control": "AD"}, people, people | {"control": "AD"}, people | {"site_controls": 6}]
    assert len({identity(**changes) for changes in own}) == len(own)
    plain = methods.for_cohort(cohort, "bridgemil", "covariance", "demo")
    content = [plain.changed["stage1"], [plain.changed["backbone"], {}, None], cohort.hash]
    train = sorted(plan.cv_folds(plain.selects)[0].train)
    assert identity() == identity(control="AD") == digest([*content, train, 0, RESULTS_VERSION])[:24]


def test_controls_set_aside_are_never_scored(cohort: bridgemil.Cohort) -> None:
    settings = methods.for_cohort(cohort, "bandpower", changes={"site_adjust": "controls", "site_controls": 6})
    plan = FoldPlan.leave_out(cohort.subjects, cohort.column("site"), "site")
    scored = set()
    for fold in plan.cv_folds(selects=False):
        made = harmonised(fold, cohort, settings)
        aside = set(fold.test) - set(made.test)
        site = plan.names[fold.number - 1]
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


def test_baselines_score_the_same_subjects_and_one_of_them_is_the_method_unadjusted(cohort: bridgemil.Cohort) -> None:
    settings = {"site_adjust": "controls", "site_controls": 6}
    results = bridgemil.evaluate(cohort, "tangent", leave_out="site", settings=settings, **{**QUIET, "baselines": True})
    assert results.baselines["bandpower"].settings.site_adjust == "controls"
    assert results.comparisons["bandpower"].sentence
    assert results.unadjusted is results.baselines["tangent, unadjusted"]
    assert results.unadjusted.settings == methods.for_cohort(cohort, "tangent")
    assert set(results.unadjusted.predictions["subject"]) == set(results.predictions["subject"])
    assert "tangent, unadjusted" in results.comparisons["tangent, unadjusted"].sentence


def test_scores_follow_a_covariate_less_once_its_effect_is_removed() -> None:
    rng, time = np.random.default_rng(0), np.arange(200) / 200
    ages = [*range(40, 80)] * 4
    labels = ["AD" if age + rng.normal() * 12 > 60 else "HC" for age in ages]  # only age tells them apart

    def wave(hz: float) -> np.ndarray:
        strength = np.exp(rng.normal(size=(1, 8, 1)) / 5)
        return 9 * strength * np.sin(2 * np.pi * hz * time + rng.uniform(0, 6, (3, 8, 1)))

    bags = [np.exp((age - 60) / 30) * wave(10) + sum(wave(hz) for hz in (2.5, 6, 20, 38)) for age in ages]
    cohort = bridgemil.Cohort.from_arrays(
        [bag.astype(np.float32) for bag in bags], labels, sfreq=200, channels=CHANNELS, columns={"age": ages}, folds=5
    )
    results = bridgemil.evaluate(cohort, "bandpower", adjust=("age",), **{**QUIET, "baselines": True})
    assert results.unadjusted is not None
    before, after = (float(one.summary["auroc"].iloc[0]) for one in (results.unadjusted, results))
    assert after < before - 0.1
    (row,) = results.to_dict()["covariates"]
    assert row["diagnosis"] > 0.75, "age alone tells the classes apart"
    assert row["score_high"] < row["before_low"], "and within the classes scores followed it more closely before"


def test_a_covariate_that_says_nothing_is_null_in_json_and_empty_in_the_table(cohort: bridgemil.Cohort) -> None:
    settings = methods.for_cohort(cohort, "bandpower", changes={"adjust": "age"})
    names, labels = [f"s{i}" for i in range(8)], ["AD", "HC"] * 4
    p = np.linspace(0.1, 0.9, 8)
    table = pd.DataFrame({"seed": 0, "fold": 1, "subject": names, "label": labels, "predicted": labels, "p_AD": p})
    rows = {name: {"age": 60.0 + (label == "AD")} for name, label in zip(names, labels, strict=True)}  # equal within
    results = Results(settings, ["AD", "HC"], table.assign(p_HC=1 - p), pd.DataFrame(), [], 1.0, rows=rows)
    (found,) = json.loads(json.dumps(results.to_dict(), allow_nan=False))["covariates"]
    assert (found["diagnosis"], found["score"], found["score_low"]) == (1, None, None)
    assert sites([("bandpower", results)])[0].rows == [["age", "1.00", ""]]


@pytest.mark.parametrize(
    ("sex", "words"),
    [
        ({"HC": "F"}, r"fold 1: the 24 training controls \(HC\) have one value of 'sex' \(F\), so that its effect"),
        ({"s001": None}, "no sex is known of s001; leave them out, or do not adjust for sex"),
        ({"s003": "unknown"}, r"column 'sex' has 3 values, not all numbers \(F, M, unknown\)"),
    ],
)
def test_covariates_that_cannot_be_adjusted_for_are_refused_before_training(
    sex: dict, words: str, cohort: bridgemil.Cohort, tmp_path: Path
) -> None:
    who = zip(cohort.subjects, cohort.labels, strict=True)
    values = [sex.get(s, sex.get(label, "FM"[i // 2 % 2])) for i, (s, label) in enumerate(who)]
    columns, bags = {"site": cohort.column("site"), "sex": values}, [cohort.windows(s) for s in cohort.subjects]
    own = bridgemil.Cohort.from_arrays(bags, cohort.labels, cohort.subjects, 200, CHANNELS, columns=columns)
    with pytest.raises(BadData, match=words):
        bridgemil.evaluate(own, "bandpower", leave_out="site", adjust=("sex",), out=tmp_path / "runs", **QUIET)
    assert not (tmp_path / "runs").exists()


def test_wrong_use_is_refused(cohort: bridgemil.Cohort) -> None:
    with pytest.raises(BadData, match="A: 12 HC, of which 15 would be set aside"):
        evaluated(cohort, site_adjust="controls")
    with pytest.raises(BadUse, match="eegnet has no fixed features"):
        bridgemil.evaluate(cohort, "attention", "eegnet", settings={"site_adjust": "people"}, **QUIET)
    with pytest.raises(BadUse, match="--leave-out decides the folds"):
        bridgemil.evaluate(cohort, "bandpower", leave_out="site", folds=3, **QUIET)
    with pytest.raises(BadUse, match="site"):
        bridgemil.evaluate(cohort, "bandpower", leave_out="hospital", **QUIET)
