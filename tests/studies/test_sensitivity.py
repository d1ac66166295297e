"""The study sensitivity: one setting at a time, and refusals before any run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridgemil import methods, studies
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import benchmark, collect, plan
from bridgemil.errors import BadUse
from bridgemil.studies import sensitivity
from contexts import QUICK, quick_context

VARY = {"stage2.retention": [0, 1e-5, 1e-2], "stage1.subbag_size": [2]}


@pytest.fixture(scope="module")
def varied(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> tuple[studies.Findings, studies.StudyContext]:
    context = quick_context(cohort, tmp_path_factory.mktemp("varied"), options={"vary": VARY})
    return studies.study("sensitivity", context), context


def test_settings_vary_one_at_a_time(varied: tuple[studies.Findings, studies.StudyContext]) -> None:
    _, context = varied
    runs = collect(context.store)
    pairs = set(zip(runs["stage2.retention"], runs["stage1.subbag_size"], strict=True))
    assert pairs == {(0, 8), (1e-5, 8), (1e-2, 8), (1e-5, 2)}, "no combinations, and the usual value once"
    assert len(runs) == 3 * 4


def test_each_value_stands_beside_the_usual_one(varied: tuple[studies.Findings, studies.StudyContext]) -> None:
    findings, _ = varied
    table = findings.tables["sensitivity"].set_index(["setting", "value"])
    assert list(table.index) == [
        *(("stage2.retention", text) for text in ("0", "1e-05", "0.01")), ("stage1.subbag_size", "2"),
        ("stage1.subbag_size", "8"),  # nobody asked for it: the others are compared with it
    ]  # fmt: skip
    assert table["default"].to_dict() == {
        ("stage2.retention", "0"): False, ("stage2.retention", "1e-05"): True, ("stage2.retention", "0.01"): False,
        ("stage1.subbag_size", "2"): False, ("stage1.subbag_size", "8"): True,
    }  # fmt: skip
    usual = table.loc[("stage2.retention", "1e-05")]
    assert usual[["gain", "p"]].isna().all(), "it is not compared with itself"
    for _, row in table[~table["default"]].iterrows():
        assert row["gain"] == pytest.approx(row["accuracy"] - usual["accuracy"])
    assert [any(f"nine.cohort, {key}:" in words for words in findings.sentences) for key in VARY] == [True, True]


def test_the_gradient_of_retention_grows_with_its_weight(varied: tuple[studies.Findings, studies.StudyContext]) -> None:
    ratio = varied[0].tables["sensitivity"].set_index("value")["gradient_ratio"]
    assert ratio.loc["0.01"] > 10 * ratio.loc["1e-05"] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "attention", "vary": {"stage1.subbag_size": [4]}}, "attention has no setting stage1.subbag_size"),
        ({"method": "wo_stage1"}, "stage2.retention is what makes wo_stage1"),
        ({"method": "bandpower"}, "bandpower has no setting stage2.retention; name one that it has with --vary"),
        ({"vary": {"stage2.retension": [0]}}, r"no setting stage2\.retension; did you mean stage2\.retention"),
        ({"vary": {"stage2.retention": ["much"]}}, r"stage2\.retention: should be a valid number"),
        ({"method": "bridgmil"}, "did you mean bridgemil"),
    ],
)
def test_what_cannot_vary_is_refused_before_any_run(
    cohort: Cohort, tmp_path: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(BadUse, match=words):
        studies.study("sensitivity", quick_context(cohort, tmp_path, options=options))
    assert not (tmp_path / "runs").exists()


def test_the_usual_settings_are_bridgemils() -> None:
    assert all(methods.has_setting("bridgemil", key) for key in sensitivity.VARIED)


def test_a_benchmark_varies_settings_together_and_collect_shows_them(cohort: Cohort, tmp_path: Path) -> None:
    vary = {"stage2.retention": [0, 1e-4], "stage2.lr": [1e-3, 1e-2]}
    how = {"recipe": "paper", "folds": 3, "settings": QUICK}
    grid = plan([cohort], ["bandpower", "bridgemil"], ["eegnet"], 1, "demo", tmp_path, **how, vary=vary)
    assert len(grid.jobs) == 3 * (1 + 4), "band power, which has neither setting, runs once"
    where = quick_context(cohort, tmp_path).where
    assert benchmark(grid, where, progress=False).done == len(grid.jobs)
    table = collect(grid.store)
    network = table[table["method"] == "bridgemil"]
    assert network.groupby(["stage2.retention", "stage2.lr"]).size().to_dict() == {
        (retention, lr): 3 for retention in vary["stage2.retention"] for lr in vary["stage2.lr"]
    }
    assert network["settings_hash"].nunique() == 4
    assert table.loc[table["method"] == "bandpower", list(vary)].isna().all(axis=None)
    assert {"stage1.epochs", "stage2.epochs"} <= set(table.columns), "what the user set stands there too"
    assert "stage2.weight_decay" not in table, "what nobody set does not"


def test_a_setting_without_values_is_refused(cohort: Cohort, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="is to vary, but has no value"):
        plan([cohort], ["bridgemil"], ["eegnet"], 1, "demo", tmp_path, vary={"stage2.retention": []})


def test_no_value_and_a_value_named_twice_are_values(cohort: Cohort, tmp_path: Path) -> None:
    vary = {"stage2.bag_windows": [None, 2], "stage2.retention": [0, 0.0]}
    findings = studies.study("sensitivity", quick_context(cohort, tmp_path, recipe="ours", options={"vary": vary}))
    table = findings.tables["sensitivity"]
    values = table.groupby("setting", sort=False)["value"].apply(list).to_dict()
    assert values == {"stage2.bag_windows": ["2", "32", "None"], "stage2.retention": ["0", "1e-05"]}
    assert (table["runs_of_all_folds"] == 1).all()


def test_where_no_value_is_the_usual_one_everything_as_usual_stands_first(cohort: Cohort, tmp_path: Path) -> None:
    options = {"method": "bandpower", "vary": {"baseline.classifier": ["extra_trees"]}}
    findings = studies.study("sensitivity", quick_context(cohort, tmp_path, options=options, settings={}))
    table = findings.tables["sensitivity"]
    assert table[["value", "default"]].to_numpy().tolist() == [["defaults", True], ["extra_trees", False]]


def test_what_a_value_changes_besides_itself_is_said(cohort: Cohort, tmp_path: Path) -> None:
    context = quick_context(cohort, tmp_path, recipe="ours", settings={})
    usual = context.experiment(cohort, "bridgemil").settings
    other = context.experiment(cohort, "bridgemil", changes={"stage2.aggregator": "timemil"}).settings
    found = {("", None): usual, ("stage2.aggregator", "timemil"): other, ("stage2.retention", 1e-5): usual}
    results: Any = {("c", *key): [SimpleNamespace(settings=settings)] for key, settings in found.items()}
    (note,) = sensitivity._other_changes(results)
    assert note.startswith("stage2.aggregator = timemil also changes ")
    assert f"stage2.lr from {usual.stage2.lr:g} to {other.stage2.lr:g}" in note
    assert "aggregator from" not in note
