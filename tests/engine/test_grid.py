"""Planning a grid: what it holds, what is refused before any work, and that it is quick."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bridgemil import backbones, baselines, methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.benchmark import Where, plan
from bridgemil.engine.forecast import FITTED_BASELINE, START, forecast
from bridgemil.engine.plan import Experiment, Job, Plan, grid
from bridgemil.errors import BadData, BadUse, BridgeMILError
from bridgemil.evaluation.protocol import Protocol
from bridgemil.runs import RunStore, open_store
from people import people

QUICK = {"stage1.epochs": 2, "stage1.subbag_pairs": 4, "stage2.epochs": 3, "stage2.burn_in": 0}


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    return people(6, windows=4).save(tmp_path / "cohort")


def jobs(experiments: list[Experiment]) -> list[Job]:
    return Plan(experiments, RunStore(Path("nothing is done here"))).jobs


def demo(cohort: Cohort, names: list[str], backbone_names: tuple[str, ...] = ("eegnet",), **more: Any) -> list[Job]:
    return jobs(grid([cohort], names, backbone_names, Protocol(budget="demo", **{"folds": 3} | more)))


def test_what_is_named_twice_is_run_once(cohort: Cohort, tmp_path: Path) -> None:
    copy = cohort.save(tmp_path / "copy")
    with pytest.warns(UserWarning, match="holds the same windows as another cohort here; it is run once"):
        experiments = grid([cohort, cohort, copy], ["attention"] * 2, ["eegnet"] * 2, Protocol(budget="demo", folds=3))
    assert len(experiments) == 1
    assert len(jobs(experiments)) == 3


def test_an_ensemble_runs_its_members_and_shares_them(cohort: Cohort) -> None:
    experiments = grid(
        [cohort], ["attention", "attention+bandpower"], ["eegnet", "mtdnet"], Protocol(budget="demo", folds=3)
    )
    assert [len(experiment.settings.each) for experiment in experiments] == [1, 2, 1, 2]
    assert len(jobs(experiments)) == 3 * (2 + 1), "two backbones and one band power"


def test_every_method_is_planned_on_every_backbone_and_a_baseline_once(tmp_path: Path) -> None:
    cohort = people(6, n_channels=8, windows=1).save(tmp_path / "cohort")
    names = [name for name in (*methods.names(), *methods.ablations()) if name != "masked"]
    experiments = grid([cohort], names, backbones.names(), Protocol(budget="demo", folds=3, seeds=2))
    networks = [name for name in names if name not in baselines.names()]
    assert len(experiments) == len(baselines.names()) + len(networks) * len(backbones.names())
    planned = jobs(experiments)
    assert len({job.identity for job in planned}) == len(planned) == 2 * 3 * len(experiments)
    assert [job.seed for job in planned] == sorted(job.seed for job in planned), "whole tables appear early"
    assert all((job.stage1 is None) == (job.settings.stage1 is None) for job in planned)


def test_a_grid_of_5000_runs_with_4000_done_is_planned_at_once(tmp_path: Path) -> None:
    people(88, n_channels=8, windows=1).save(tmp_path / "cohort")
    store = open_store(tmp_path / "runs")
    networks = [name for name in backbones.names() if not backbones.has_front_end(name)]
    arguments = ([tmp_path / "cohort"], list(methods.METHODS), networks, 13, "laptop", tmp_path / "runs")
    planned = plan(*arguments)
    for job in planned.jobs[:4000]:
        store.run_folder(job.identity).mkdir()
    begun = time.process_time()  # not the clock's time: other work on the machine is not our doing
    planned = plan(*arguments)
    took = time.process_time() - begun
    assert len(planned.jobs) == 13 * 10 * len(methods.METHODS) * len(networks)
    assert len(planned.todo) == len(planned.jobs) - 4000
    assert took < 6


def test_settings_go_to_the_methods_that_have_them(cohort: Cohort) -> None:
    planned = demo(cohort, ["bandpower", "attention", "bridgemil"], settings=QUICK)
    epochs = {job.settings.method: (job.settings.stage1, job.settings.stage2) for job in planned}
    assert epochs["bandpower"] == (None, None)
    assert epochs["attention"][0] is None
    assert epochs["attention"][1].epochs == 3
    assert (epochs["bridgemil"][0].epochs, epochs["bridgemil"][1].epochs) == (2, 3)
    trees = demo(cohort, ["bandpower", "attention"], settings={"baseline.classifier": "extra_trees"})
    assert {str(job.settings.baseline) for job in trees} == {"{'classifier': 'extra_trees'}", "None"}
    with pytest.warns(UserWarning, match=r"no method of this grid has a setting stage1\.lr; it changes nothing"):
        demo(cohort, ["bandpower", "attention"], settings={"stage1.lr": 1})


def test_mistakes_are_refused_before_any_work(cohort: Cohort, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="method must be one of"):
        demo(cohort, ["magic"], settings=QUICK)
    with pytest.raises(BadUse, match="backbone must be one of"):
        demo(cohort, ["attention"], ("nope",))
    with pytest.raises(BadUse, match="at least one cohort, method, backbone and seed"):
        demo(cohort, [])
    for key in ("nonsense", "stage1_typo", "stage1", "stage2.retension", "baseline.clasifier"):
        with pytest.raises(BadUse, match=key.rpartition(".")[2]):
            demo(cohort, ["bandpower", "attention"], settings={key: 1})
    for name in backbones.names():
        if backbones.has_front_end(name):
            with pytest.raises(BadUse, match="no samples to hide"):
                demo(cohort, ["masked"], (name,))
    alone = people(6, classes=("A",)).save(tmp_path / "alone")
    with pytest.raises(BadData, match="one class only"):
        demo(alone, ["attention"])
    with pytest.raises(BadUse, match="save a cohort made in memory"):
        plan([people(6)], ["attention"], out=tmp_path / "runs")


def test_a_grid_follows_a_split_or_groups(cohort: Cohort, tmp_path: Path) -> None:
    split = Protocol(folds=3, split_seed=7).fold_plan(cohort)
    split.save(tmp_path / "split.json")
    planned = demo(cohort, ["attention"], folds=None, split=tmp_path / "split.json")
    assert [job.fold.test for job in planned] == list(split.folds)
    dealt = demo(cohort, ["attention"], split_seed=7)
    assert [job.identity for job in dealt] == [job.identity for job in planned]
    with pytest.raises(BridgeMILError, match="no column"):
        demo(cohort, ["attention"], groups="family")


def test_planning_makes_no_folder(cohort: Cohort, tmp_path: Path) -> None:
    planned = plan([cohort], ["attention"], out=tmp_path / "runs", folds=3)
    assert len(planned.todo) == 3
    assert len(forecast(planned, Where(device="cpu")).seconds) == 3
    assert not (tmp_path / "runs").exists()


def test_the_time_of_a_run_is_that_of_its_finished_siblings(cohort: Cohort, tmp_path: Path) -> None:
    from bridgemil.engine.benchmark import benchmark

    how = {"out": tmp_path / "runs", "folds": 3, "settings": {"stage2.epochs": 1, "stage2.burn_in": 0}}
    one = plan([cohort], ["attention", "bandpower"], ["eegnet"], 1, "demo", **how)
    assert benchmark(one, Where("inline", device="cpu"), progress=False).done == 6
    more = plan([cohort], ["attention", "bandpower"], ["eegnet"], 2, "demo", **how)
    first = more.store.metadata(more.jobs[0].identity)["seconds"]
    expected = forecast(more, Where(device="cpu"))
    assert set(expected.seconds) == {job.identity for job in more.todo}
    networks = {expected.seconds[job.identity] for job in more.todo if job.settings.is_network}
    assert networks == {first + START}
    assert set(expected.seconds.values()) - networks == {FITTED_BASELINE}, "the baseline's features are there"


def test_masking_is_left_out_where_a_front_end_leaves_nothing_to_mask(cohort: Cohort) -> None:
    names = ["attention", "masked"]
    with pytest.warns(UserWarning, match="masked on covariance is left out"):
        experiments = grid([cohort], names, ["eegnet", "covariance"], Protocol(budget="demo", folds=3))
    made = [(experiment.settings.method, experiment.settings.backbone) for experiment in experiments]
    assert made == [("attention", "eegnet"), ("masked", "eegnet"), ("attention", "covariance")]
    with pytest.raises(BadUse, match="no samples to hide"):
        grid([cohort], ["masked"], ["covariance"], Protocol(budget="demo", folds=3))
