"""``bridgemil demo``: the whole way on real people, and a look at simulated ones whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bridgemil.bundle.prediction import RecordingPrediction
    from bridgemil.bundle.training import Trained
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.metrics import EvidenceFound
    from bridgemil.evaluation.results import Results

NAME = "demo"
METHODS = ("bandpower", "tangent", "majority_vote", "attention", "bridgemil")
BACKBONE, RECIPE = "covariance", "ours"
CLASSES = {"A": "Alzheimer", "C": "healthy"}
# Kept out of everything, to be predicted at the end: the last of each class, whoever they are.
KEPT = {"sub-036": "A", "sub-065": "C"}
TRAINED = ("tangent", "bridgemil")  # averaged in the model that predicts them
# Where the truth is known: isolated sharp waves, which a network must find in the raw signal.
TRUTH = {"subjects": 30, "seconds": 60, "evidence": "burst"}
TRUTH_METHODS, TRUTH_BACKBONE, TRUTH_FOLDS = ("attention", "bridgemil"), "covariance", 3


def run(
    out: Annotated[Path, typer.Argument(help="Folder for everything the demo writes.")] = Path("bridgemil-demo"),
    methods: Annotated[str, typer.Option(help="Methods to compare.")] = ",".join(METHODS),
    budget: Annotated[str, typer.Option(help="How long to train: demo, laptop or paper.")] = "demo",
    threads: options.Threads = 1,
    truth: Annotated[bool, typer.Option("--truth/--no-truth", help="The simulated people too.")] = True,
    json: options.Json = False,
) -> None:
    """Compare methods on one minute of EEG of 63 real people, train a model, and predict two people it never saw.

    Example: `bridgemil demo`

    Then simulated people, to see whether gates find planted waves. Takes a few minutes on two cores and ends with
    pages to open. Interrupted, the same command goes on. Research use only.
    """
    from bridgemil import methods as known
    from bridgemil.report.demo_page import write_page

    show, chosen = not json, options.names(methods) or METHODS
    for name in chosen:
        known.settings(name, BACKBONE, budget, recipe=RECIPE)  # a mistake is better noticed now than in ten minutes
    cohort, results = _real_people(out, chosen, budget, threads, show)
    trained = _model(out, cohort, chosen, budget, threads, show)
    people = _new_people(out, trained, show)
    found = _planted(out / "truth", budget, threads, show) if truth else {}
    pictures = [out / "results.png", out / "cohort.png", *([out / "truth" / "gates.png"] if found else [])]
    write_page(out / "report.html", cohort, list(results.values()), found, pictures, people)
    _methods_page(out)
    if json:
        content: dict[str, Any] = {name: result.to_dict() for name, result in results.items()}
        gates = {name: {"mean": value.mean, "ci95": [value.low, value.high]} for name, value in found.items()}
        pages = {"report": str(out / "report.html"), "methods": str(out / "methods.html"), "model": str(out / "model")}
        options.print_json({"results": content, "evidence_found": gates, **pages, "predicted": people})
        return
    typer.echo("\nOpen in a browser:")
    typer.echo(f"  {out / 'report.html'}    what the demo found, and the two people")
    typer.echo(f"  {out / 'methods.html'}   every method in full, as `bridgemil report RUNS --html` writes it")
    for person in people:
        typer.echo(f"  {out / person['page']}   {person['subject']}, whom the model never saw")
    typer.echo("Research use only: one minute of each person, and no basis for a decision about anybody.")
    typer.echo(f"Next, with your own recordings: bridgemil prepare FOLDER {out / 'mine.cohort'} --label COLUMN")


def _real_people(
    out: Path, chosen: Sequence[str], budget: str, threads: int, show: bool
) -> tuple[Cohort, dict[str, Results]]:
    """Prepare the package's recordings and compare the methods on them."""
    from bridgemil.cohort.prepare import prepare
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.report.figures import draw_accuracy, draw_cohort
    from bridgemil.report.terminal import print_results, print_summary

    manifest = _everybody_else(out / "recordings.csv")
    cohort = prepare(manifest, out / "cohort", label="Group", classes=CLASSES, progress=show)
    draw_cohort(cohort, out / "cohort.png", show=show)
    if show:
        print_summary(cohort)
    results = {
        name: evaluate(
            cohort, name, BACKBONE, budget=budget, recipe=RECIPE, out=out / "runs", threads=threads, progress=show,
            baselines=False,
        )
        for name in chosen
    }  # fmt: skip
    if show:
        print_results(list(results.values()))
    draw_accuracy(out / "results.png", list(results.values()))
    return cohort, results


def _recordings() -> Path:
    from importlib.resources import files

    return Path(str(files("bridgemil.recordings") / "adftd-60s"))


def _file(subject: str) -> Path:
    return _recordings() / subject / "eeg" / f"{subject}_task-eyesclosed_eeg.edf"


def _everybody_else(manifest: Path) -> Path:
    """A manifest of the package's recordings, without the people who are kept out."""
    import csv
    import io

    from bridgemil.storage.files import write_text

    with (_recordings() / "participants.tsv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream, delimiter="\t") if row["participant_id"] not in KEPT]
    manifest.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["subject", "Group", "file", "Age", "Gender"])
    for row in rows:
        who = row["participant_id"]
        writer.writerow([who, row["Group"], _file(who), row["Age"], row["Gender"]])
    write_text(manifest, text.getvalue())
    return manifest


def _model(out: Path, cohort: Cohort, chosen: Sequence[str], budget: str, threads: int, show: bool) -> Trained:
    """A bundle of the folds' models that are there already: nothing is trained twice."""
    from bridgemil.bundle.training import train

    method = "+".join(name for name in TRAINED if name in chosen) or chosen[-1]
    return train(
        cohort, out / "model", method, BACKBONE, recipe=RECIPE, budget=budget, runs=out / "runs", name="demo",
        threads=threads, baselines=False, overwrite=True, progress=show,
    )  # fmt: skip


def _new_people(out: Path, trained: Trained, show: bool) -> list[dict[str, Any]]:
    """Predict the people who were kept out, from their files; a page each."""
    from bridgemil.bundle.page import write_page
    from bridgemil.bundle.prediction import RecordingPrediction, predict
    from bridgemil.cli.predict import print_cautions, print_prediction

    people = []
    if show:
        typer.echo(f"\nModel: {out / 'model'}; two subjects it never saw:\n")
        print_cautions(trained.bundle)
    for subject, group in KEPT.items():
        (found,) = predict(trained.bundle, [_file(subject)])
        assert isinstance(found, RecordingPrediction), found
        write_page(out / f"{subject}.html", trained.bundle, found)
        if show:
            print_prediction(found)
            typer.echo(f"  on record: {CLASSES[group]}\n")
        people.append(_row(subject, group, found))
    return people


def _row(subject: str, group: str, found: RecordingPrediction) -> dict[str, Any]:
    content = found.to_dict()
    kept = {name: content[name] for name in ("probabilities", "predicted", "windows_used", "warnings", "model")}
    return {"subject": subject, "label": CLASSES[group], "page": f"{subject}.html"} | kept


def _methods_page(out: Path) -> None:
    from bridgemil.report.benchmark import build
    from bridgemil.report.pages.results import report_page
    from bridgemil.report.templating import write
    from bridgemil.runs import RunStore

    runs = RunStore(out / "runs")
    write(out / "methods.html", report_page(build(runs), runs))


def _planted(out: Path, budget: str, threads: int, show: bool) -> dict[str, EvidenceFound]:
    """Simulated people with sharp waves at known places: do the gates of held-out patients point at them?"""
    from bridgemil.cohort.prepare import prepare
    from bridgemil.cohort.synthetic import SynthSettings, patients, synthesise, true_evidence
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.evaluation.metrics import evidence_found
    from bridgemil.report.figures import Example, draw_gates
    from bridgemil.report.terminal import print_evidence
    from bridgemil.settings import parse

    recordings = synthesise(out / "recordings", parse(SynthSettings, TRUTH), progress=show)
    cohort = prepare(recordings, out / "cohort", label="group", progress=show)
    diseased = patients(recordings)
    ill = [subject for subject in cohort.subjects if subject in diseased]
    known = {s: true_evidence(recordings, s, cohort.window_starts(s)) for s in ill}
    gates: dict[str, dict[str, NDArray[np.float32]]] = {}
    for name in TRUTH_METHODS:
        result = evaluate(
            cohort, name, TRUTH_BACKBONE, budget=budget, recipe=RECIPE, out=out / "runs", folds=TRUTH_FOLDS,
            threads=threads, progress=show, baselines=False,
        )  # fmt: skip
        gates[name] = {str(s): rows["gate"].to_numpy() for s, rows in result.windows.groupby("subject")}
    found = {name: evidence_found(values, known) for name, values in gates.items()}
    first = ill[0]
    shown = {name: values[first] for name, values in gates.items()}
    draw_gates(out / "gates.png", found, Example(first, cohort.window_starts(first), known[first], shown))
    if show:
        print_evidence(found)
    return found
