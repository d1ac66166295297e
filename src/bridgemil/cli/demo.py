"""``bridgemil demo``: the whole way on real recordings, and attention weights on simulated ones with known evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    import pandas as pd

    from bridgemil.cohort.cohort import Cohort
    from bridgemil.evaluation.results import Results
    from bridgemil.report.pages.charts import Chart

DEFAULT = "tangent+bridgemil"  # the default of `evaluate` and `train`
METHODS = ("bandpower", "tangent", "majority_vote", "attention", "bridgemil", DEFAULT)
BACKBONE, RECIPE = "covariance", "ours"
CLASSES = {"A": "Alzheimer", "C": "healthy"}
SHOWN = ("probabilities", "predicted", "windows_used", "warnings", "model")  # of a prediction
KEPT = 3  # subjects of each class that are kept out of training, to be predicted at the end: the last ones by id
# Simulated patients with isolated sharp waves at known times, to be found in the raw signal.
TRUTH = {"subjects": 30, "seconds": 60, "evidence": "burst"}
TRUTH_METHODS, TRUTH_FOLDS = ("attention", "bridgemil"), 3


def run(
    out: Annotated[Path, typer.Argument(help="Folder for everything the demo writes.")] = Path("bridgemil-demo"),
    methods: Annotated[str, typer.Option(help="Methods to compare.")] = ",".join(METHODS),
    budget: Annotated[str, typer.Option(help="How long to train: demo, laptop or paper.")] = "demo",
    threads: options.Threads = 1,
    truth: Annotated[bool, typer.Option("--truth/--no-truth", help="Include the simulated patients.")] = True,
    *,
    progress: bool,
) -> Any:
    """Compare methods on one minute of EEG of 59 subjects, train a model, and predict six subjects kept out of it.

    Example: `bridgemil demo`

    Then simulated patients, to test whether attention weights point at known evidence. Takes about two minutes on two
    cores and ends with pages to open. An interrupted demo is resumed by the same command. Research use only.
    """
    from bridgemil import methods as known
    from bridgemil.report.benchmark import build
    from bridgemil.report.pages.results import demo_page, report_page
    from bridgemil.report.templating import write
    from bridgemil.runs import RunStore

    chosen = options.names(methods) or METHODS
    for name in chosen:
        known.settings(name, BACKBONE, budget, recipe=RECIPE)  # an error before the work, not after it
    how: dict[str, Any] = {"budget": budget, "recipe": RECIPE, "threads": threads, "progress": progress}
    how["baselines"] = False
    cohort, results = _compare(out, chosen, how)
    held_out = _predict(out, cohort, DEFAULT if DEFAULT in chosen else chosen[-1], how)
    found, example = _planted(out / "truth", how) if truth else ({}, None)
    write(out / "report.html", demo_page(cohort, list(results.values()), found, example, held_out))
    write(out / "methods.html", report_page(build(RunStore(out / "runs"))))
    typer.echo(f"""
Open in a browser:
  {out / "report.html"}    the results, with a page for each subject kept out of training
  {out / "methods.html"}   all methods in detail, as `bridgemil report RUNS --html` writes it
Research use only: one minute per subject is no basis for a decision about anyone.
Next, with your own recordings: bridgemil prepare FOLDER {out / "mine.cohort"} --label COLUMN""")
    ends = {name: [row["auroc95_low"], row["auroc95_high"]] for name, row in found.items()}
    evidence = {name: {"mean": found[name]["auroc"], "ci95": ci95} for name, ci95 in ends.items()}
    pages = {"report": str(out / "report.html"), "methods": str(out / "methods.html"), "model": str(out / "model")}
    content = {"evidence_found": evidence, **pages, "predicted": held_out}
    return lambda: {"results": {name: result.to_dict() for name, result in results.items()}, **content}


def _subjects() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Subjects of the package's recordings with their files: those of the cohort, and those kept out."""
    from importlib.resources import files

    import pandas as pd

    folder = Path(str(files("bridgemil.recordings") / "adftd-60s"))
    table = pd.read_csv(folder / "participants.tsv", sep="\t", dtype=str).sort_values("participant_id")
    table = table.rename(columns={"participant_id": "subject"})
    table["file"] = [str(folder / who / "eeg" / f"{who}_task-eyesclosed_eeg.edf") for who in table["subject"]]
    table = table[["subject", "Group", "file", "Age", "Gender"]]
    kept = table.groupby("Group").tail(KEPT)
    return table.drop(kept.index), kept


def _manifest(path: Path) -> Path:
    """Write the manifest of the cohort."""
    from bridgemil.storage.files import write_text

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _subjects()[0].to_csv(index=False))
    return path


def _compare(out: Path, chosen: Sequence[str], how: dict[str, Any]) -> tuple[Cohort, dict[str, Results]]:
    """Prepare the package's recordings and compare the methods on them."""
    from bridgemil.cohort.prepare import prepare
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.report.figures import draw_accuracy
    from bridgemil.report.terminal import print_results, print_summary

    manifest, show = _manifest(out / "recordings.csv"), how["progress"]
    cohort = prepare(manifest, out / "cohort", label="Group", classes=CLASSES, progress=show)
    print_summary(cohort)
    results = {name: evaluate(cohort, name, BACKBONE, out=out / "runs", **how) for name in chosen}
    print_results(list(results.values()))
    draw_accuracy(out / "results.png", list(results.values()))
    return cohort, results


def _predict(out: Path, cohort: Cohort, method: str, how: dict[str, Any]) -> list[dict[str, Any]]:
    """Make a bundle of the folds' models, which are trained already, and predict the subjects kept out of them."""
    from bridgemil.bundle.page import write_page
    from bridgemil.bundle.prediction import RecordingPrediction, predict
    from bridgemil.bundle.training import train
    from bridgemil.cli.predict import print_cautions
    from bridgemil.report.tables import Sheet
    from bridgemil.report.terminal import print_sheets

    how = {"runs": out / "runs", "name": "demo", "overwrite": True, **how}
    bundle = train(cohort, out / "model", method, BACKBONE, **how).bundle
    typer.echo(f"\nModel: {out / 'model'}\n")
    print_cautions(bundle)
    rows, shown, warned = [], list[list[str]](), list[str]()
    for who, group, file in _subjects()[1][["subject", "Group", "file"]].itertuples(index=False):
        (found,) = predict(bundle, [Path(file)])
        assert isinstance(found, RecordingPrediction), found
        write_page(out / f"{who}.html", bundle, found)
        row, content = {"subject": who, "label": CLASSES[group], "page": f"{who}.html"}, found.to_dict()
        rows.append(row | {name: content[name] for name in SHOWN})
        shares = [f"{p:.0%}" for p in found.by_class().values()]
        shown.append([who, CLASSES[group], found.predicted or "withheld", *shares])
        warned += [f"{who}: {warning}" for warning in found.warnings]
    columns = ["subject", "diagnosis", "predicted", *(f"p({name})" for name in bundle.classes)]
    print_sheets([Sheet("Subjects kept out of its training", columns, shown, after=warned)])
    return rows


def _planted(out: Path, how: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], Chart]:
    """How well attention weights rank planted evidence in held-out simulated patients, and the weights of one."""
    from bridgemil.cohort.prepare import prepare
    from bridgemil.cohort.synthetic import SynthSettings, synthesise
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.report.pages.charts import weights_chart
    from bridgemil.report.terminal import print_evidence
    from bridgemil.settings import parse
    from bridgemil.studies.evidence import evidence_found, known_evidence

    recordings = synthesise(out / "recordings", parse(SynthSettings, TRUTH), progress=how["progress"])
    cohort = prepare(recordings, out / "cohort", label="group", progress=how["progress"])
    how = {"out": out / "runs", **how}
    known = known_evidence(recordings, cohort)
    results = {name: evaluate(cohort, name, BACKBONE, folds=TRUTH_FOLDS, **how) for name in TRUTH_METHODS}
    found = {name: evidence_found([one], known)[0] for name, one in results.items()}
    print_evidence(found)
    patient = next(iter(known))
    own = {name: one.windows[one.windows["subject"] == patient] for name, one in results.items()}
    weights = {name: windows["gate"].to_numpy() for name, windows in own.items()}
    return found, weights_chart(patient, cohort.window_starts(patient), known[patient], weights)
