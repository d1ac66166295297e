"""``bridgemil synth``: a synthetic data set with known evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bridgemil.cli import options


def run(
    out: Annotated[Path, typer.Argument(help="Folder to write the BIDS data set to.")],
    subjects: Annotated[int, typer.Option(min=6, help="Number of subjects.")] = 60,
    classes: Annotated[int, typer.Option(min=2, max=3, help="Number of classes.")] = 2,
    seconds: Annotated[int, typer.Option(min=60, help="Length of each recording.")] = 120,
    evidence: Annotated[
        str,
        typer.Option(help="state (intermittent slowing), burst (isolated sharp waves) or trait (continuous slowing)."),
    ] = "state",
    seed: options.Seed = 0,
    jobs: options.Cores = None,
    json: options.Json = False,
) -> None:
    """Write a synthetic cohort as BIDS with EDF files; the true evidence is in each events.tsv.

    Example: `bridgemil synth synthetic && bridgemil prepare synthetic synthetic.cohort --label group`
    """
    from bridgemil.cohort.synthetic import SynthSettings, synthesise
    from bridgemil.settings import parse

    given = {"subjects": subjects, "classes": classes, "seconds": seconds, "evidence": evidence, "seed": seed}
    settings = parse(SynthSettings, given)
    synthesise(out, settings, jobs)
    if json:
        options.print_json({"path": str(out), "label": "group", **settings.model_dump()})
    else:
        typer.echo(f"{subjects} recordings of {seconds} s in {out}")
        typer.echo(f"\nNext: bridgemil prepare {out} {out.name}.cohort --label group")
