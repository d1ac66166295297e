"""``bridgemil demo``: the whole way on a synthetic cohort."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bridgemil.cli import options

NAME = "demo"


def run(
    out: Annotated[Path, typer.Argument(help="Folder for everything the demo writes.")] = Path("bridgemil-demo"),
    json: options.Json = False,
) -> None:
    """Simulate recordings, prepare them as a cohort and look at it.

    Example: `bridgemil demo`
    """
    from bridgemil.cohort.prepare import prepare
    from bridgemil.cohort.synthetic import SynthSettings, synthesise
    from bridgemil.report.cohort_figure import draw
    from bridgemil.report.cohort_summary import print_summary, summary

    show = not json
    recordings = synthesise(out / "recordings", SynthSettings(), progress=show)
    cohort = prepare(recordings, out / "cohort", label="group", progress=show)
    picture = out / "cohort.png"
    draw(cohort, picture, show=show)
    if json:
        options.print_json(summary(cohort) | {"picture": str(picture)})
    else:
        print_summary(cohort)
        typer.echo(f"\nOpen {picture} to see the cohort; the recordings and their true evidence are in {recordings}.")
