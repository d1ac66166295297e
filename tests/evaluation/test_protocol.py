"""evaluate: every subject held out once, the same numbers every time, nothing run twice, killed runs go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bridgemil
from bridgemil import backbones, methods
from bridgemil.cohort.folds import FoldPlan, SubjectKFold
from bridgemil.engine.evaluate import evaluate
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.estimate import estimate
from bridgemil.evaluation.run import Run, device_of
from bridgemil.learning import checkpoint
from bridgemil.runs import open_store, run_identity, stage1_identity
from people import people

QUICK = {"stage2.epochs": 2, "stage2.burn_in": 0}
QUICK_STAGE1 = {"stage1.epochs": 2, "stage1.subbag_pairs": 4, "stage1.batch_windows": 64}


def quick(method: str) -> dict[str, int]:
    return {key: value for key, value in (QUICK | QUICK_STAGE1).items() if methods.has_setting(method, key)}


@pytest.mark.parametrize("backbone", backbones.names())
@pytest.mark.parametrize("method", methods.METHODS)
def test_every_method_runs_on_every_backbone(method: str, backbone: str) -> None:
    cohort = people(9, n_channels=19, windows=4, classes=("A", "C", "F"))
    if method == "masked" and backbones.has_front_end(backbone):
        with pytest.raises(BadUse, match="no samples to hide"):
            evaluate(cohort, method, backbone, budget="demo", folds=3, progress=False)
        return
    results = evaluate(
        cohort, method, backbone, budget="demo", folds=3, progress=False, floor=False, settings=quick(method)
    )
    assert sorted(results.predictions["subject"]) == sorted(cohort.subjects)
    p = results.predictions[["p_A", "p_C", "p_F"]].to_numpy()
    assert np.allclose(p.sum(axis=1), 1, atol=1e-5)
    assert np.isfinite(results.curves["loss"]).all()


@pytest.mark.parametrize("name", methods.ABLATIONS)
def test_every_ablation_runs(name: str) -> None:
    settings = quick(name)
    results = evaluate(people(6), name, budget="demo", folds=3, progress=False, settings=settings)
    assert len(results.predictions) == 6


def test_columns_and_summary_are_the_contract() -> None:
    cohort = people(12)
    results = evaluate(cohort, "attention", seeds=2, budget="demo", folds=4, progress=False, settings=QUICK)
    columns = ["seed", "fold", "subject", "label", "predicted", "p_control", "p_patient"]
    assert list(results.predictions.columns) == columns
    assert (results.predictions.groupby("seed")["subject"].nunique() == 12).all()
    assert results.predictions.groupby("subject")["fold"].nunique().eq(1).all(), "seeds share one split"
    row = results.summary.iloc[0]
    assert row["ci95_low"] <= row["accuracy"] <= row["ci95_high"]
    per_seed = [
        (own["label"] == own["predicted"]).groupby(own["fold"]).mean().mean()
        for _, own in results.predictions.groupby("seed")
    ]
    assert row["accuracy"] == pytest.approx(np.mean(per_seed))
    assert row["accuracy_std"] == pytest.approx(np.std(per_seed))
    assert results.confusion.to_numpy().sum() == pytest.approx(12)


def test_a_method_learns_what_can_be_learnt() -> None:
    cohort = people(18, effect=1.5)
    results = evaluate(cohort, "attention", budget="demo", folds=3, progress=False, settings={"stage2.lr": 5e-3})
    assert results.summary["auroc"][0] > 0.9


def test_band_power_finds_slow_waves() -> None:
    results = evaluate(people(18, effect=1.5), "bandpower", folds=3, progress=False)
    assert results.summary["accuracy"][0] > 0.9
    trees = {"baseline.classifier": "extra_trees"}
    other = evaluate(people(18, effect=1.5), "bandpower", folds=3, progress=False, settings=trees)
    assert other.summary["accuracy"][0] > 0.9


@pytest.mark.parametrize("method", ["majority_vote", "attention", "timemil", "supcon", "masked", "bridgemil"])
def test_the_same_settings_give_the_same_bits(method: str, tmp_path: Path) -> None:
    both = []
    for name in ("one", "two"):
        both.append(
            evaluate(
                people(), method, budget="demo", folds=3, out=tmp_path / name, threads=1, progress=False,
                settings=quick(method),
            )
        )  # fmt: skip
    pd.testing.assert_frame_equal(both[0].predictions, both[1].predictions, check_exact=True)
    pd.testing.assert_frame_equal(both[0].curves, both[1].curves, check_exact=True)


def test_seeds_differ_and_the_callers_random_numbers_are_left_alone() -> None:
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    results = evaluate(people(), "attention", seeds=2, budget="demo", folds=3, progress=False, settings=QUICK)
    assert torch.equal(torch.rand(3), expected)
    p = [own["p_control"].to_numpy() for _, own in results.predictions.groupby("seed")]
    assert not np.allclose(p[0], p[1])


def test_finished_runs_are_not_run_again(tmp_path: Path) -> None:
    cohort, runs = people(), tmp_path / "runs"
    first = evaluate(cohort, "bridgemil", budget="demo", folds=3, out=runs, progress=False, settings=quick("bridgemil"))
    stamps = {file: file.stat().st_mtime_ns for file in runs.rglob("*.parquet")}
    assert len(stamps) == 3 * (3 + 1 + 1), "predictions, curves and windows of the network, predictions of two floors"
    told: list[int] = []
    again = evaluate(
        cohort, "bridgemil", budget="demo", folds=3, out=runs, progress=False, settings=quick("bridgemil"),
        announce=lambda one, todo, every: told.append(todo),
    )  # fmt: skip
    assert {file: file.stat().st_mtime_ns for file in runs.rglob("*.parquet")} == stamps
    assert not told
    pd.testing.assert_frame_equal(first.predictions, again.predictions)
    assert not list((runs / "unfinished").iterdir())


def test_a_shared_stage_1_encoder_is_trained_once(tmp_path: Path) -> None:
    cohort = people()
    for method in ("bridgemil", "wo_retention"):
        settings = QUICK | QUICK_STAGE1
        evaluate(cohort, method, budget="demo", folds=3, out=tmp_path, progress=False, floor=False, settings=settings)
    assert len(list((tmp_path / "stage1").iterdir())) == 3
    assert len(list((tmp_path / "runs").iterdir())) == 6


KILLED = """
import sys
import torch
sys.path.insert(0, {tests!r})
from bridgemil.engine.evaluate import evaluate
from people import people
settings = {{"stage1.epochs": 6, "stage1.subbag_pairs": 4, "stage1.batch_windows": 32,
            "stage2.epochs": 12, "stage2.burn_in": 0, "stage2.freeze_epochs": 2}}
evaluate(people(9), "bridgemil", budget="demo", folds=3, out={out!r}, threads=1, progress=False, settings=settings)
"""


def kill_at(out: Path, phase: str) -> None:
    """Start the evaluation and kill -9 it when a loop of this phase has begun and is not finished."""
    code = KILLED.format(tests=str(Path(__file__).parents[1]), out=str(out))
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert process.poll() is None, "it ended before it could be killed"
            for file in (out / "unfinished").glob("*.safetensors") if (out / "unfinished").is_dir() else ():
                try:
                    about = checkpoint.read(file)[1]
                except Exception:  # it was just replaced or removed
                    continue
                if about["curve"][-1]["phase"] == phase:
                    process.send_signal(signal.SIGKILL)
                    return
            time.sleep(0.002)
        raise AssertionError(f"no {phase} was seen")
    finally:
        process.kill()
        process.wait()


def test_killed_in_stage_1_and_in_stage_2_it_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    kill_at(tmp_path / "killed", "Stage 1")
    kill_at(tmp_path / "killed", "Stage 2")
    left = list((tmp_path / "killed" / "unfinished").glob("*.safetensors"))
    assert left, "nothing was in the middle when it was killed"
    settings = {
        "stage1.epochs": 6, "stage1.subbag_pairs": 4, "stage1.batch_windows": 32,
        "stage2.epochs": 12, "stage2.burn_in": 0, "stage2.freeze_epochs": 2,
    }  # fmt: skip
    both = [
        evaluate(
            people(9), "bridgemil", budget="demo", folds=3, out=tmp_path / name, threads=1, progress=False,
            settings=settings,
        )
        for name in ("killed", "whole")
    ]  # fmt: skip
    pd.testing.assert_frame_equal(both[0].predictions, both[1].predictions, check_exact=True)
    pd.testing.assert_frame_equal(both[0].curves, both[1].curves, check_exact=True)
    for identity in both[0].runs:
        files = [tmp_path / name / "runs" / identity / "model.safetensors" for name in ("killed", "whole")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_identities_hold_what_decides_a_result_and_nothing_else() -> None:
    cohort = people()
    rounds = SubjectKFold(3).plan(cohort.subjects, cohort.labels).rounds()
    own = methods.settings("bridgemil")
    one = run_identity(own, cohort.hash, rounds[0], 0)
    assert one == run_identity(own, cohort.hash, rounds[0], 0)
    others = [
        run_identity(own, cohort.hash, rounds[1], 0),
        run_identity(own, cohort.hash, rounds[0], 1),
        run_identity(own, people(seed=1).hash, rounds[0], 0),
        run_identity(methods.settings("bridgemil", changes={"stage2.retention": 0}), cohort.hash, rounds[0], 0),
        run_identity(methods.settings("bridgemil", "mtdnet"), cohort.hash, rounds[0], 0),
    ]
    assert len({one, *others}) == 6
    without = methods.settings("wo_retention")
    assert stage1_identity(own, "h", rounds[0], 0) == stage1_identity(without, "h", rounds[0], 0)
    assert stage1_identity(own, "h", rounds[0], 0) != stage1_identity(methods.settings("supcon"), "h", rounds[0], 0)


def test_a_saved_split_is_followed_and_a_foreign_one_refused(tmp_path: Path) -> None:
    cohort = people()
    plan = SubjectKFold(4, split_seed=7).plan(cohort.subjects, cohort.labels)
    plan.save(tmp_path / "split.json")
    results = evaluate(cohort, "bandpower", split=tmp_path / "split.json", progress=False)
    found = results.predictions.groupby("fold")["subject"].apply(set).tolist()
    assert found == [set(fold) for fold in plan.folds]
    with pytest.raises(BadData, match="other subjects"):
        evaluate(people(6), "bandpower", split=tmp_path / "split.json", progress=False)
    with pytest.raises(BadUse, match="already decides"):
        evaluate(cohort, "bandpower", split=plan, folds=3, progress=False)


def test_bad_calls_are_refused() -> None:
    for arguments in (
        {"folds": 0},
        {"settings": {"backbone_options.foo": 2}},
    ):
        with pytest.raises(BadUse):
            evaluate(people(), **{"method": "attention", "progress": False} | arguments)
    for arguments in ({"seeds": 0}, {"seeds": [1, 1]}, {"device": "tpu"}, {"threads": 0}, {"backbone": "resnet"}):
        with pytest.raises(BadUse):
            evaluate(people(), **{"method": "attention", "folds": 3, "progress": False} | arguments)


def test_the_estimate_is_within_a_factor_of_the_truth(tmp_path: Path) -> None:
    cohort = people(9, n_channels=19, windows=30)
    settings = methods.settings("attention", budget="demo", changes={"stage2.epochs": 10, "stage2.burn_in": 0})
    subjects = SubjectKFold(3).plan(cohort.subjects, cohort.labels).rounds()[0]
    one = estimate(cohort, subjects, settings, device_of("cpu"))
    store = open_store(tmp_path)
    took = store.about(Run(cohort, subjects, settings, 0).perform(store, device_of("cpu")))["seconds"]
    assert took / 4 < one.seconds < took * 4
    assert 0.3e9 < one.memory < 2e9


def test_a_registered_backbone_can_be_evaluated() -> None:
    from torch import nn

    backbones.register("flat", lambda channels, times: nn.Sequential(nn.Flatten(), nn.Linear(channels * times, 5)))
    results = bridgemil.evaluate(people(6), "millet", "flat", budget="demo", folds=3, progress=False, settings=QUICK)
    assert len(results.predictions) == 6


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(bridgemil.errors.BridgeMILError, match="cannot be written"):
        evaluate(people(6), "bandpower", folds=3, out=tmp_path / "file" / "runs", progress=False)


def test_labels_dealt_at_random_cannot_be_predicted() -> None:
    """METHOD: twenty label shuffles, mean balanced accuracy within 1/K and two standard errors."""
    cohort = people(12, windows=3)
    found = []
    for shuffle in range(20):
        labels = np.random.default_rng(shuffle).permutation(cohort.labels).tolist()
        bags = [np.array(cohort.windows(s)) for s in cohort.subjects]
        shuffled = bridgemil.Cohort.from_arrays(bags, labels, sfreq=200.0, channels=cohort.channels, burn_in=1)
        results = evaluate(shuffled, "attention", budget="demo", folds=3, split_seed=shuffle, progress=False)
        found.append(results.summary["balanced_accuracy"][0])
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - 0.5) < 2 * error


def test_seeds_may_come_from_numpy() -> None:
    results = evaluate(people(6), "bandpower", seeds=np.arange(2), folds=3, progress=False)
    assert results.seeds == 2
    assert evaluate(people(6), "bandpower", seeds=np.int64(1), folds=3, progress=False).seeds == 1


def test_a_training_fold_without_a_class_is_refused() -> None:
    cohort = people(6)
    plan = FoldPlan((tuple(cohort.subjects[::2][:2]), (cohort.subjects[4],), tuple(cohort.subjects[1::2])))
    with pytest.raises(BadData, match=r"fold 1 has no training subject of class control"):
        evaluate(cohort, "bandpower", split=plan, progress=False)


def test_a_cohort_of_one_class_is_refused() -> None:
    with pytest.raises(BadData, match="one class only"):
        evaluate(people(6, classes=("control",)), "bandpower", folds=3, progress=False)


def test_a_damaged_run_or_encoder_is_named(tmp_path: Path) -> None:
    cohort, settings = people(6), QUICK | QUICK_STAGE1
    arguments = {"budget": "demo", "folds": 3, "out": tmp_path, "progress": False, "settings": settings}
    results = evaluate(cohort, "bridgemil", **arguments)
    (tmp_path / "runs" / results.runs[0] / "run.json").unlink()
    with pytest.raises(BadData, match=r"damaged \(no run.json\)"):
        evaluate(cohort, "bridgemil", **arguments)
    for file in (tmp_path / "stage1").rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(BadData, match=r"encoder.safetensors: is damaged"):
        evaluate(cohort, "wo_retention", **arguments)


def test_the_time_of_a_shared_or_resumed_stage_1_is_counted(tmp_path: Path) -> None:
    cohort, settings = people(6), QUICK | QUICK_STAGE1 | {"stage1.epochs": 12}
    arguments = {"budget": "demo", "folds": 3, "out": tmp_path, "progress": False, "settings": settings}
    first = evaluate(cohort, "bridgemil", **arguments)
    second = evaluate(cohort, "wo_retention", **arguments)
    assert second.seconds > 0.4 * first.seconds
