"""Did anything of a run see its test subjects? What the runs themselves recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridgemil.audit.findings import Finding, shortened
from bridgemil.audit.inputs import AuditInput
from bridgemil.cohort.folds import Fold
from bridgemil.errors import BadData
from bridgemil.methods import Settings
from bridgemil.runs import RESULTS_VERSION, run_identity, stage1_identity

NAME = "provenance"


def check(inputs: AuditInput) -> list[Finding]:
    """Every run: who was predicted, and whom its Stage 1 encoder had seen."""
    if inputs.store is None:
        return [Finding(NAME, "SKIP", "No runs were given: name their folder to have them checked.")]
    damaged = _damaged(inputs)
    if not inputs.runs:
        n = len(inputs.store.finished())
        message = f"None of the {n} runs there is of this cohort." if n else "There are no finished runs."
        return [*damaged, Finding(NAME, "SKIP", message)]
    return [*damaged, _predicted(inputs), _selection(inputs), _stage1(inputs)]


def _damaged(inputs: AuditInput) -> list[Finding]:
    """Runs and splits that cannot be read, of this cohort or another: what they hold nobody knows."""
    if not inputs.damage:
        return []
    message = f"{len(inputs.damage)} records in the folder of runs cannot be read; the rest was looked at."
    fix = "delete these and run the same command again"
    return [Finding("damaged_runs", "FAIL", message, shortened(inputs.damage), fix, {"damaged": len(inputs.damage)})]


def fold_of(about: Mapping[str, Any]) -> Fold:
    """Who trained, selected and tested, as run.json says.

    Parameters
    ----------
    about
        The content of run.json.
    """
    kept = {subject: tuple(rows) for subject, rows in (about.get("kept") or {}).items()}
    train, validation, test = (tuple(about.get(side) or ()) for side in ("train", "validation", "test"))
    return Fold(int(about.get("fold") or 1), train, validation, test, kept)


def _predicted(inputs: AuditInput) -> Finding:
    """Predictions are of the test subjects, all of them and nobody else, with the cohort's labels and the run's name.

    A run's name is the hash of its settings and lists: where it no longer follows from them, they were edited.
    """
    assert inputs.store is not None
    wrong, records = [], inputs.cohort.records
    for identity, about in inputs.runs.items():
        try:
            table = inputs.store.predictions(identity)[["subject", "label"]]
        except (BadData, OSError, ValueError, KeyError) as error:
            wrong.append(f"run {identity}: its predictions cannot be read ({str(error).splitlines()[0]})")
            continue
        if table.empty or set(table["subject"]) != set(about["test"]) or table["subject"].duplicated().any():
            wrong.append(f"run {identity}: its predictions are not of its test subjects, each once")
        elif any(
            s not in records or records[s].label != v for s, v in zip(table["subject"], table["label"], strict=True)
        ):
            wrong.append(f"run {identity}: its predictions hold other labels than the cohort")
        if about.get("results_version") == RESULTS_VERSION and _renamed(inputs, identity, about):
            wrong.append(f"run {identity}: its lists or settings were changed after it was run")
    n = len(inputs.runs)
    if wrong:
        fix = "delete these runs and run the same command again"
        return Finding(NAME, "FAIL", f"Records of runs contradict themselves ({n} looked at).", shortened(wrong), fix)
    message = f"Every run's predictions are of its own test subjects, and its record is as it was written ({n} runs)."
    return Finding(NAME, "PASS", message, numbers={"runs": n})


def _renamed(inputs: AuditInput, identity: str, about: Mapping[str, Any]) -> bool:
    try:
        settings = Settings.model_validate(about["settings"])
    except ValueError:
        return True
    return run_identity(settings, inputs.cohort.hash, fold_of(about), int(about["seed"])) != identity


def _selection(inputs: AuditInput) -> Finding:
    """The epoch was selected on validation subjects, who are not tested; or nobody selected anything."""
    trained = {i: about for i, about in inputs.runs.items() if about.get("selected_epoch") is not None}
    if not trained:
        return Finding("selection", "SKIP", "No run selected anything: baselines have no epochs.")
    last = [i for i, a in trained.items() if (a["settings"].get("stage2") or {}).get("selection") == "last"]
    wrong = [
        f"run {i}: selected an epoch without validation subjects"
        for i, a in trained.items()
        if i not in last and not a["validation"]
    ]
    wrong += [
        f"run {i}: selected on {', '.join(sorted(both))}, whom it tests"
        for i, a in trained.items()
        if (both := set(a["validation"]) & set(a["test"]))
    ]
    if wrong:
        fix = "delete these runs and run them again on a split of `bridgemil folds`"
        return Finding("selection", "FAIL", "Epochs were selected on test subjects.", shortened(wrong), fix)
    sentences = []
    if n := len(trained) - len(last):
        sentences = [f"Epochs were selected on validation subjects, none of whom is tested by the same run ({n} runs)"]
    if last:
        sentences.append(f"{len(last)} runs used their last epoch, which needs no validation subjects")
    numbers = {"runs": len(trained), "last_epoch": len(last)}
    return Finding("selection", "PASS", "; ".join(sentences) + ".", numbers=numbers)


def _stage1(inputs: AuditInput) -> Finding:
    """The Stage 1 encoder of a run was trained on the run's training subjects and on nobody else."""
    assert inputs.store is not None
    wrong, broken, absent, looked = [], [], 0, 0
    notes: dict[str, dict[str, Any] | None] = {}
    for identity, about in inputs.runs.items():
        try:
            settings = Settings.model_validate(about["settings"])
        except ValueError:
            continue
        encoder = stage1_identity(settings, inputs.cohort.hash, fold_of(about), int(about["seed"]))
        if encoder is None:
            continue
        try:
            if encoder not in notes:
                present = inputs.store.stage1(encoder).exists()
                notes[encoder] = inputs.store.encoder_metadata(encoder) if present else None
        except BadData as error:
            notes[encoder] = {"damage": str(error).splitlines()[0]}
        note = notes[encoder]
        if note is None:
            absent += 1
            continue
        looked += 1
        if "damage" in note:
            broken.append(f"run {identity}: {note['damage']}")
            continue
        seen = set(map(str, note["train"]))
        tested = sorted(seen & set(about["test"]))
        if tested:
            wrong.append(f"run {identity}: its encoder {encoder} was trained on {', '.join(tested[:4])}, whom it tests")
        elif seen != set(about["train"]):
            wrong.append(f"run {identity}: its encoder {encoder} was trained on other people than the run")
    if wrong or broken:
        fix = "delete these runs and their encoders (RUNS/stage1) and run the same command again"
        message = "Stage 1 encoders saw others than training subjects." if wrong else "Stage 1 encoders are damaged."
        return Finding("stage1", "FAIL", message, shortened(wrong + broken), fix)
    gone = f"; of {absent} runs the encoder is no longer there" if absent else ""
    if not looked:
        return Finding("stage1", "SKIP", f"No run has a Stage 1 encoder to look at{gone}.")
    message = f"Every Stage 1 encoder was trained on its run's training subjects only ({looked} runs{gone})."
    return Finding("stage1", "PASS", message, numbers={"runs": looked, "absent": absent})
