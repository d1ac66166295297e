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

    from bridgemil.cohort.store import Cohort
    from bridgemil.evaluation.evidence import EvidenceFound
    from bridgemil.evaluation.results import Results

NAME = "demo"
METHODS = ("bandpower", "tangent", "majority_vote", "attention", "bridgemil")
BACKBONE, RECIPE = "covariance", "ours"
CLASSES = {"A": "Alzheimer", "C": "healthy"}
# Where the truth is known: isolated sharp waves, which a network must find in the raw signal.
TRUTH = {"subjects": 30, "seconds": 60, "evidence": "burst"}
TRUTH_METHODS, TRUTH_BACKBONE, TRUTH_FOLDS = ("attention", "bridgemil"), "covariance", 3


def run(
    out: Annotated[Path, typer.Argument(help="Folder for everything the demo writes.")] = Path("bridgemil-demo"),
    methods: Annotated[str, typer.Option(help="Methods to compare.")] = ",".join(METHODS),
    budget: Annotated[str, typer.Option(help="How long to train: demo, laptop or paper.")] = "demo",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads.  [default: the cores available]")] = None,
    truth: Annotated[bool, typer.Option("--truth/--no-truth", help="The simulated people too.")] = True,
    json: options.Json = False,
) -> None:
    """Compare methods on one minute of EEG of 65 real people, then see whether gates find planted waves.

    Example: `bridgemil demo`

    Takes a few minutes on two cores and ends with a page to open. Interrupted, the same command goes on.
    """
    from bridgemil import methods as known
    from bridgemil.report.demo_page import write_page

    show, chosen = not json, options.names(methods) or METHODS
    for name in chosen:
        known.settings(name, BACKBONE, budget, recipe=RECIPE)  # a mistake is better noticed now than in ten minutes
    cohort, results = _real_people(out, chosen, budget, threads, show)
    found = _planted(out / "truth", budget, threads, show) if truth else {}
    pictures = [out / "results.png", out / "cohort.png", *([out / "truth" / "gates.png"] if found else [])]
    write_page(out / "report.html", cohort, list(results.values()), found, pictures)
    if json:
        content: dict[str, Any] = {name: result.for_machines() for name, result in results.items()}
        gates = {name: {"mean": value.mean, "ci95": [value.low, value.high]} for name, value in found.items()}
        options.print_json({"results": content, "evidence_found": gates, "report": str(out / "report.html")})
        return
    typer.echo(f"\nOpen {out / 'report.html'} in a browser.")
    typer.echo(f"Next, with your own recordings: bridgemil prepare FOLDER {out / 'mine.cohort'} --label COLUMN")


def _real_people(
    out: Path, chosen: Sequence[str], budget: str, threads: int | None, show: bool
) -> tuple[Cohort, dict[str, Results]]:
    """Prepare the package's recordings and compare the methods on them."""
    from importlib.resources import as_file, files

    from bridgemil.cohort.prepare import prepare
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.report.cohort_figure import draw as draw_cohort
    from bridgemil.report.cohort_summary import print_summary
    from bridgemil.report.results_figure import draw
    from bridgemil.report.results_table import print_results

    with as_file(files("bridgemil.recordings") / "adftd-60s") as recordings:
        cohort = prepare(recordings, out / "cohort", label="Group", classes=CLASSES, progress=show)
    draw_cohort(cohort, out / "cohort.png", show=show)
    if show:
        print_summary(cohort)
    results = {
        name: evaluate(
            cohort, name, BACKBONE, budget=budget, recipe=RECIPE, out=out / "runs", threads=threads, progress=show,
            floor=False,
        )
        for name in chosen
    }  # fmt: skip
    if show:
        print_results(list(results.values()))
    draw(out / "results.png", list(results.values()))
    return cohort, results


def _planted(out: Path, budget: str, threads: int | None, show: bool) -> dict[str, EvidenceFound]:
    """Simulated people with sharp waves at known places: do the gates of held-out patients point at them?"""
    from bridgemil.cohort.prepare import prepare
    from bridgemil.cohort.synthetic import SynthSettings, synthesise, true_evidence
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.evaluation.evidence import evidence_found
    from bridgemil.report.results_figure import Example, draw_gates
    from bridgemil.report.results_table import print_evidence
    from bridgemil.settings import parse

    recordings = synthesise(out / "recordings", parse(SynthSettings, TRUTH), progress=show)
    cohort = prepare(recordings, out / "cohort", label="group", progress=show)
    patients = [s for s, label in zip(cohort.subjects, cohort.labels, strict=True) if label != "control"]
    known = {s: true_evidence(recordings, s, cohort.window_starts(s)) for s in patients}
    gates: dict[str, dict[str, NDArray[np.float32]]] = {}
    for name in TRUTH_METHODS:
        result = evaluate(
            cohort, name, TRUTH_BACKBONE, budget=budget, recipe=RECIPE, out=out / "runs", folds=TRUTH_FOLDS,
            threads=threads, progress=show, floor=False,
        )  # fmt: skip
        gates[name] = {str(s): rows["gate"].to_numpy() for s, rows in result.windows.groupby("subject")}
    found = {name: evidence_found(values, known) for name, values in gates.items()}
    first = patients[0]
    shown = {name: values[first] for name, values in gates.items()}
    draw_gates(out / "gates.png", found, Example(first, cohort.window_starts(first), known[first], shown))
    if show:
        print_evidence(found)
    return found
