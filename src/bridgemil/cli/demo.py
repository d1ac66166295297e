"""``bridgemil demo``: the whole way on a synthetic cohort whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    from bridgemil.cohort.store import Cohort
    from bridgemil.evaluation.evidence import EvidenceFound
    from bridgemil.evaluation.results import Results

NAME = "demo"
METHODS = ("bandpower", "majority_vote", "attention", "bridgemil")
FOLDS = 5
SECONDS = 60  # of each recording: half the default, so that there is time for twice the epochs


def run(
    out: Annotated[Path, typer.Argument(help="Folder for everything the demo writes.")] = Path("bridgemil-demo"),
    subjects: Annotated[
        int, typer.Option(help="People to simulate; more people take longer and can be learnt from.")
    ] = 60,
    evidence: Annotated[str, typer.Option(help="state (comes and goes) or burst (isolated sharp waves).")] = "state",
    methods: Annotated[str, typer.Option(help="Methods to compare.")] = ",".join(METHODS),
    budget: Annotated[str, typer.Option(help="How long to train: demo, laptop or paper.")] = "demo",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads.  [default: the cores available]")] = None,
    json: options.Json = False,
) -> None:
    """Simulate recordings, prepare them, compare methods on held-out people, and see whether gates find the evidence.

    Example: `bridgemil demo`

    Takes a few minutes on two cores and ends with a page to open. Interrupted, the same command goes on.
    """
    from bridgemil.cohort.prepare import prepare
    from bridgemil.cohort.synthetic import SynthSettings, synthesise
    from bridgemil.engine.evaluate import evaluate
    from bridgemil.methods import settings as method_settings
    from bridgemil.report.cohort_figure import draw
    from bridgemil.report.cohort_summary import print_summary
    from bridgemil.settings import parse

    show, chosen = not json, options.names(methods) or METHODS
    for name in chosen:
        method_settings(name, budget=budget)  # a mistake is better noticed now than in ten minutes
    simulated = parse(SynthSettings, {"subjects": subjects, "evidence": evidence, "seconds": SECONDS})
    recordings = synthesise(out / "recordings", simulated, progress=show)
    cohort = prepare(recordings, out / "cohort", label="group", progress=show)
    draw(cohort, out / "cohort.png", show=show)
    if show:
        print_summary(cohort)
    results = {
        name: evaluate(cohort, name, budget=budget, out=out / "runs", folds=FOLDS, threads=threads, progress=show)
        for name in dict.fromkeys(("bandpower", *chosen))
    }
    found = _report(out, recordings, cohort, results, show)
    if json:
        content: dict[str, Any] = {name: one.for_machines() for name, one in results.items()}
        evidence_json = {name: {"mean": one.mean, "ci95": [one.low, one.high]} for name, one in found.items()}
        options.print_json({"results": content, "evidence_found": evidence_json, "report": str(out / "report.html")})


def _report(
    out: Path, recordings: Path, cohort: Cohort, results: dict[str, Results], show: bool
) -> dict[str, EvidenceFound]:
    """What the gates found; the table on the terminal, the picture and the page."""
    from bridgemil.cohort.synthetic import true_evidence
    from bridgemil.evaluation.evidence import evidence_found
    from bridgemil.report.demo_page import write_page
    from bridgemil.report.results_figure import Example, draw
    from bridgemil.report.results_table import print_evidence, print_results
    from bridgemil.runs import open_store

    store = open_store(out / "runs")
    patients = [s for s, label in zip(cohort.subjects, cohort.labels, strict=True) if label != "control"]
    truth = {s: true_evidence(recordings, s, cohort.window_starts(s)) for s in patients}
    gates = {}
    for name, one in results.items():
        if one.settings.stage2.kind == "bags":
            windows = [store.windows(identity) for identity in one.runs]
            gates[name] = {subject: own.numpy() for run in windows for subject, own in run.items()}
    found = {name: evidence_found(own, truth) for name, own in gates.items()}
    floor = results["bandpower"]
    if show:
        print_results([one for one in results.values() if one is not floor], floor)
        print_evidence(found)
    pictures = [out / "cohort.png"]
    if gates:
        first = patients[0]
        example = Example(
            first, cohort.window_starts(first), truth[first], {name: own[first] for name, own in gates.items()}
        )
        draw(out / "results.png", list(results.values()), found, example)
        pictures.insert(0, out / "results.png")
    write_page(out / "report.html", list(results.values()), floor, found, pictures)
    if show:
        typer.echo(f"\nOpen {out / 'report.html'} in a browser. The recordings are in {recordings}.")
    return found
