"""The leak zoo, runs: each has one planted defect, which its check finds and no other check calls a failure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bridgemil import methods
from bridgemil.audit import CHECKS, AuditInput, AuditOptions, audit, audit_runs, provenance, recomputed
from bridgemil.cohort.cohort import Cohort
from bridgemil.engine.evaluate import evaluate
from bridgemil.learning import checkpoint
from bridgemil.models import fit
from bridgemil.report.held_out import find
from bridgemil.runs import RunStore, fold_of, run_identity
from leaky import edit, made, resealed, signals
from named_pipes import make_pipe

METHODS = {"bandpower": {}, "bridgemil": {"stage1.epochs": 1, "stage2.epochs": 2}, "tangent": {}}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort and finished runs of it: two baselines, and a network with a Stage 1 and a normalisation."""
    folder = tmp_path_factory.mktemp("honest")
    cohort = made(signals(12, n_channels=4, seconds=8)).save(folder / "cohort")
    for method, changes in METHODS.items():
        evaluate(
            cohort, method, "eegnet", budget="demo", folds=3, out=folder / "runs", threads=1, progress=False,
            baselines=False, settings=changes,
        )  # fmt: skip
    return folder


def _audited(folder: Path) -> dict[str, str]:
    """The checks of runs only; all runs are computed again."""
    case = AuditInput(Cohort.open(folder / "cohort"), RunStore(folder / "runs"), AuditOptions(sample=20))
    wanted = [check for check in CHECKS if check.name in ("fold_membership", "provenance", "recomputed")]
    return {finding.name: finding.status for check in wanted for finding in check.run(case)}


def _run_of(folder: Path, method: str) -> Path:
    """The first run of a method."""
    runs = sorted((folder / "runs" / "runs").iterdir())
    return next(run for run in runs if json.loads((run / "run.json").read_text())["settings"]["method"] == method)


def _renamed(run: Path) -> None:
    """Give a run the name that its record now asks for: a forger who knows how runs are named."""
    about = json.loads((run / "run.json").read_text())
    settings = methods.Settings.model_validate(about["settings"])
    run.rename(run.parent / run_identity(settings, about["cohort"]["hash"], fold_of(about), about["seed"]))


def _test_subject_trains(folder: Path) -> None:
    run = _run_of(folder, "bridgemil")
    edit(run / "run.json", lambda about: about["train"].append(about["test"][0]))
    _renamed(run)


def _test_subject_selects(folder: Path) -> None:
    run = _run_of(folder, "bridgemil")
    edit(run / "run.json", lambda about: about["validation"].append(about["test"][0]))
    _renamed(run)


def _record_edited(folder: Path) -> None:
    edit(_run_of(folder, "bridgemil") / "run.json", lambda about: about["train"].pop())


def _noted_split_with_a_subject_twice(folder: Path) -> None:
    file = next((folder / "runs" / "splits").rglob("record.json"))
    edit(file, lambda content: content["folds"][0].append(content["folds"][1][0]))
    resealed(file.parent, "split")


def _encoder_saw_a_test_subject(folder: Path) -> None:
    tested = json.loads((_run_of(folder, "bridgemil") / "run.json").read_text())["test"]
    for file in (folder / "runs" / "stage1").rglob("encoder.json"):
        edit(file, lambda note: note["train"].append(tested[0]))
        resealed(file.parent, "encoder")


def _encoder_damaged(folder: Path) -> None:
    for file in (folder / "runs" / "stage1").rglob("encoder.safetensors"):
        content = bytearray(file.read_bytes())
        content[-5] ^= 1
        file.write_bytes(content)


def _record_that_is_no_json(folder: Path) -> None:
    (_run_of(folder, "tangent") / "run.json").write_text("[" * 100_000)


def _split_of_nobody_knows_whom(folder: Path) -> None:
    (folder / "runs" / "splits" / "0123456789ab-0123456789ab.json").write_text("{}")


def _noted_split_is_a_pipe(folder: Path) -> None:
    file = next((folder / "runs" / "splits").rglob("record.json"))
    file.unlink()
    make_pipe(file)


def _scale_of_everybody(folder: Path) -> None:
    cohort = Cohort.open(folder / "cohort")
    mean, std = cohort.normalisation(cohort.subjects)
    for run in _all_of(folder, "bridgemil"):
        _with_tensors(run, {"scale.mean": mean, "scale.std": std})
        _predict_again(folder, run)


def _fitted_on_everybody(folder: Path) -> None:
    cohort, run = Cohort.open(folder / "cohort"), _run_of(folder, "bandpower")
    about = json.loads((run / "run.json").read_text())
    fit(cohort, cohort.subjects, [], methods.Settings.model_validate(about["settings"])).model.write(run)
    _predict_again(folder, run)


def _tangent_fitted_on_everybody(folder: Path) -> None:
    cohort, run = Cohort.open(folder / "cohort"), _run_of(folder, "tangent")
    about = json.loads((run / "run.json").read_text())
    fit(cohort, cohort.subjects, [], methods.Settings.model_validate(about["settings"])).model.write(run)
    _predict_again(folder, run)


def _predictions_edited(folder: Path) -> None:
    def turn(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(p_control=table["p_patient"], p_patient=table["p_control"])

    _rewritten(_run_of(folder, "bridgemil") / "predictions.parquet", turn)


def _labels_edited(folder: Path) -> None:
    _rewritten(_run_of(folder, "bandpower") / "predictions.parquet", lambda t: t.assign(label=t["predicted"]))


def _predictions_of_training_subjects(folder: Path) -> None:
    run = _run_of(folder, "bandpower")
    trained = json.loads((run / "run.json").read_text())["train"][0]
    _rewritten(run / "predictions.parquet", lambda t: pd.concat([t, t.iloc[:1].assign(subject=trained)]))


def _features_of_somebody_else(folder: Path) -> None:
    cohort = Cohort.open(folder / "cohort")
    for key in (folder / "runs" / "features").iterdir():
        files = [key / record.signal_hash[:32] / "features.npy" for record in cohort.records.values()]
        there = [file for file in files if file.is_file()]
        arrays = [np.load(file) for file in there]
        for file, array in zip(there, arrays[1:] + arrays[:1], strict=True):
            np.save(file, array)
            resealed(file.parent, "features")


def _predictions_that_are_no_table(folder: Path) -> None:
    for run in _all_of(folder, "bandpower"):
        (run / "predictions.parquet").write_bytes(b"junk")


def _all_of(folder: Path, method: str) -> list[Path]:
    runs = sorted((folder / "runs" / "runs").iterdir())
    return [run for run in runs if json.loads((run / "run.json").read_text())["settings"]["method"] == method]


def _with_tensors(run: Path, changed: dict[str, Any]) -> None:
    import torch

    tensors = checkpoint.read_tensors(run / "model.safetensors")
    more = {name: torch.from_numpy(np.array(value)) for name, value in changed.items()}
    checkpoint.write_tensors(run / "model.safetensors", tensors | more)


def _predict_again(folder: Path, run: Path) -> None:
    """Let the predictions be those of the changed model, so that nothing but the defect itself is wrong."""
    cohort, store = Cohort.open(folder / "cohort"), RunStore(folder / "runs")
    resealed(run)
    model = store.model(run.name)

    def said(table: pd.DataFrame) -> pd.DataFrame:
        p = np.stack([model.predict(cohort.windows(subject)).probabilities for subject in table["subject"]])
        return table.assign(
            predicted=[cohort.classes[i] for i in p.argmax(axis=1)],
            **{f"p_{name}": p[:, k] for k, name in enumerate(cohort.classes)},
        )

    _rewritten(run / "predictions.parquet", said)


def _rewritten(file: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    change(pd.read_parquet(file)).to_parquet(file)


# What is planted: the finding that must fail, and no other may.
ZOO: dict[Callable[[Path], None], str] = {
    _test_subject_trains: "run_subjects",
    _test_subject_selects: "run_subjects",
    _record_edited: "provenance",
    _noted_split_with_a_subject_twice: "folds",
    _encoder_saw_a_test_subject: "stage1",
    _encoder_damaged: "stage1",
    _record_that_is_no_json: "damaged_runs",
    _split_of_nobody_knows_whom: "damaged_runs",
    _noted_split_is_a_pipe: "folds",
    _scale_of_everybody: "recomputed",
    _fitted_on_everybody: "recomputed",
    _tangent_fitted_on_everybody: "recomputed",
    _predictions_edited: "recomputed",
    _labels_edited: "provenance",
    _predictions_of_training_subjects: "provenance",
    _features_of_somebody_else: "recomputed",
    _predictions_that_are_no_table: "provenance",
}
# One lie may break several records: what else may fail with it.
ALSO = {
    _test_subject_selects: {"selection"},  # the same subject, seen from the selection
    _test_subject_trains: {"recomputed"},  # the scale is no longer that of the training subjects
    _record_edited: {"recomputed", "stage1"},
    _predictions_that_are_no_table: {"recomputed"},
}


def test_honest_runs_pass(honest: Path) -> None:
    assert set(_audited(honest).values()) == {"PASS"}


@pytest.mark.parametrize("plant", ZOO, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_defect_is_found(plant: Callable[[Path], None], honest: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(honest, folder)
    plant(folder)
    for run in (folder / "runs" / "runs").iterdir():
        if plant is not _record_that_is_no_json:
            resealed(run)
    failed = {name for name, status in _audited(folder).items() if status == "FAIL"}
    assert ZOO[plant] in failed
    assert failed - ALSO.get(plant, set()) == {ZOO[plant]}


def test_a_damaged_encoder_is_called_damaged(honest: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(honest, folder)
    _encoder_damaged(folder)
    case = AuditInput(Cohort.open(folder / "cohort"), RunStore(folder / "runs"))
    (finding,) = [f for f in provenance.check(case) if f.name == "stage1"]
    assert finding.message == "Stage 1 encoders are damaged."
    assert all("encoder.safetensors: was changed" in line for line in finding.evidence)


def test_runs_of_another_cohort_are_left_alone(honest: Path, tmp_path: Path) -> None:
    other = made(signals(12, n_channels=4, seconds=8, seed=5)).save(tmp_path / "other")
    case = AuditInput(other, RunStore(honest / "runs"))
    (finding,) = provenance.check(case)
    assert (finding.status, finding.message) == ("SKIP", "None of the 9 runs there is of this cohort.")


def test_the_runs_of_a_folder_of_studies_are_found(honest: Path, tmp_path: Path) -> None:
    shutil.copytree(honest / "runs", tmp_path / "study" / "runs")
    looked = audit(honest / "cohort", tmp_path / "study", sample=1)
    (found,) = [finding for finding in looked.findings if finding.name == "provenance"]
    assert (found.status, found.numbers["runs"]) == ("PASS", 9)
    cohort = Cohort.open(honest / "cohort")
    assert [f.numbers["runs"] for f in audit_runs(cohort, tmp_path / "study") if f.name == "provenance"] == [9]


def test_a_run_on_the_users_own_code_is_not_computed_again_and_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n"
        "def tiny(n_channels, n_times):\n    return nn.Sequential(nn.Flatten(), nn.Linear(n_channels * n_times, 4))\n"
    )
    cohort = made(signals(12, n_channels=4, seconds=8)).save(tmp_path / "cohort")
    evaluate(
        cohort, "attention", f"{tmp_path / 'net.py'}:tiny", budget="demo", folds=3, out=tmp_path / "runs", threads=1,
        progress=False, baselines=False, settings={"stage2.epochs": 2, "stage2.burn_in": 0},
    )  # fmt: skip
    (finding,) = recomputed.check(AuditInput(cohort, RunStore(tmp_path / "runs")))
    assert finding.status == "SKIP"
    assert len(finding.evidence) == 3
    assert all("could not be recomputed" in line and "name it again" in line for line in finding.evidence)


def test_two_generations_of_one_fold_are_one_test_of_its_subjects(honest: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(honest, tmp_path / "runs")
    for number, run in enumerate(_all_of(folder, "tangent")):
        earlier = Path(shutil.copytree(run, run.with_name(f"{number:024x}")))
        edit(earlier / "run.json", lambda about: about.update(results_version=0, finished="2020-01-01T00:00:00+00:00"))
        resealed(earlier)
    assert _audited(folder)["run_subjects"] == "PASS"
    held = find(RunStore(folder / "runs"), "sub-01", method="tangent")
    assert held.metadata["results_version"] > 0
    assert sorted(held.predictions()["subject"]) == sorted(signals(12))


def test_runs_of_an_earlier_results_version_are_not_computed_again(honest: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(honest, folder)
    _predictions_edited(folder)  # as if another version had computed them
    run = _run_of(folder, "bridgemil")
    edit(run / "run.json", lambda about: about.update(results_version=about["results_version"] - 1))
    resealed(run)
    case = AuditInput(Cohort.open(folder / "cohort"), RunStore(folder / "runs"), AuditOptions(sample=20))
    (finding,) = recomputed.check(case)
    assert finding.status == "PASS"
