"""Did a run see its test subjects, by its own records?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridgemil.audit.findings import AuditInput, Finding, first_line, pass_or_fail
from bridgemil.errors import BadData
from bridgemil.methods import Settings
from bridgemil.runs import RESULTS_VERSION, fitted_settings, fold_of, run_identity, stage1_identity

AGAIN = "delete these runs and run the same command again"


def check(inputs: AuditInput) -> list[Finding]:
    """Of every run: the predicted subjects, the subjects that selected its epoch, those of its Stage 1 encoder."""
    if inputs.store is None:
        return [Finding("provenance", "SKIP", "No runs were given: name their folder to check them.")]
    damaged, n = [], len(inputs.damage)
    if n:  # of this cohort or another: nobody knows
        message = f"{n} records in the folder of runs cannot be read; the others were checked."
        fix = "delete these and run the same command again"
        damaged = [Finding("damaged_runs", "FAIL", message, inputs.damage, fix, {"damaged": n})]
    if not inputs.runs:
        n = len(inputs.store.finished())
        message = f"None of the {n} runs there is of this cohort." if n else "There are no finished runs."
        return [*damaged, Finding("provenance", "SKIP", message)]
    return [*damaged, _predicted(inputs), _selection(inputs), _stage1(inputs)]


def _predicted(inputs: AuditInput) -> Finding:
    """Predictions are of the test subjects, each once and no other, with the cohort's labels and the run's identity.

    The identity of a run is the hash of its settings and subjects: where it is another, they were edited.
    """
    assert inputs.store is not None
    problems, records = [], inputs.cohort.records
    for identity, metadata in inputs.runs.items():
        try:
            table = inputs.store.predictions(identity)[["subject", "label"]]
        except (BadData, OSError, ValueError, KeyError) as error:
            problems.append(f"run {identity}: its predictions cannot be read ({first_line(error)})")
            continue
        labels = dict(zip(table["subject"], table["label"], strict=True))
        if not labels or set(labels) != set(metadata["test"]) or len(labels) < len(table):
            problems.append(f"run {identity}: its predictions are not of its test subjects, each once")
        elif any(subject not in records or records[subject].label != label for subject, label in labels.items()):
            problems.append(f"run {identity}: its predictions hold other labels than the cohort")
        if metadata.get("results_version") == RESULTS_VERSION and _edited(inputs, identity, metadata):
            problems.append(f"run {identity}: its lists or settings were changed after it was run")
    n = len(inputs.runs)
    success = f"Every run's predictions are of its own test subjects, and its record is unchanged ({n} runs)."
    failure = f"Records of runs contradict themselves ({n} checked)."
    return pass_or_fail("provenance", problems, success, failure, AGAIN, {"runs": n})


def _edited(inputs: AuditInput, identity: str, metadata: Mapping[str, Any]) -> bool:
    try:
        settings = Settings.model_validate(metadata["settings"])
    except ValueError:
        return True
    return run_identity(settings, inputs.cohort.hash, fold_of(metadata), int(metadata["seed"])) != identity


def _selection(inputs: AuditInput) -> Finding:
    """The epoch was selected on validation subjects, who are not tested; or nothing was selected."""
    trained = {i: run for i, run in inputs.runs.items() if run.get("selected_epoch") is not None}
    if not trained:
        return Finding("selection", "SKIP", "No run selected an epoch: baselines have none.")
    problems, last = [], 0
    for i, run in trained.items():
        is_last = (run["settings"].get("stage2") or {}).get("selection") == "last"
        last += is_last
        if not is_last and not run["validation"]:
            problems.append(f"run {i}: selected an epoch without validation subjects")
        if both := sorted(set(run["validation"]) & set(run["test"])):
            problems.append(f"run {i}: selected on {', '.join(both)}, whom it tests")
    sentences = []
    if n := len(trained) - last:
        sentences = [f"Epochs were selected on validation subjects, none of whom is tested by the same run ({n} runs)"]
    if last:
        sentences.append(f"{last} runs used their last epoch, which needs no validation subjects")
    success, failure = f"{'; '.join(sentences)}.", "Epochs were selected on test subjects."
    fix = "delete these runs and run them again on a split of `bridgemil folds`"
    return pass_or_fail("selection", problems, success, failure, fix, {"runs": len(trained), "last_epoch": last})


def _stage1(inputs: AuditInput) -> Finding:
    """The Stage 1 encoder of a run was trained on the run's training subjects and on no other."""
    assert inputs.store is not None
    problems, damaged, absent, checked = [], [], 0, 0
    for identity, metadata in inputs.runs.items():
        try:
            settings = fitted_settings(metadata)
        except ValueError:  # damaged settings are another finding
            continue
        encoder = stage1_identity(settings, inputs.cohort.hash, fold_of(metadata), int(metadata["seed"]))
        if encoder is None:
            continue
        if not inputs.store.place("stage1", encoder).exists():
            absent += 1
            continue
        checked += 1
        try:
            seen = set(map(str, inputs.store.encoder(encoder)[1]["train"]))
        except BadData as error:
            damaged.append(f"run {identity}: {first_line(error)}")
            continue
        tested = ", ".join(sorted(seen & set(metadata["test"]))[:4])
        if tested or seen != set(metadata["train"]):
            on = f"{tested}, whom it tests" if tested else "other subjects than the run"
            problems.append(f"run {identity}: its encoder {encoder} was trained on {on}")
    gone = f"; of {absent} runs the encoder is no longer there" if absent else ""
    if not checked:
        return Finding("stage1", "SKIP", f"No run has a Stage 1 encoder to check{gone}.")
    success = f"Every Stage 1 encoder was trained on its run's training subjects only ({checked} runs{gone})."
    failure = "Stage 1 encoders saw others than training subjects." if problems else "Stage 1 encoders are damaged."
    fix = "delete these runs and their encoders (RUNS/stage1) and run the same command again"
    numbers = {"runs": checked, "absent": absent}
    return pass_or_fail("stage1", [*problems, *damaged], success, failure, fix, numbers)
