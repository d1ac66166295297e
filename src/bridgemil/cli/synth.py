"""``bridgemil synth``: a synthetic data set with known evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options
from bridgemil.cohort.synthetic import SITE_SHIFTS


def run(
    out: Annotated[Path, typer.Argument(help="Folder to write the BIDS data set to.")],
    subjects: Annotated[int, typer.Option(min=6, help="Number of subjects.")] = 60,
    classes: Annotated[int, typer.Option(min=2, max=3, help="Number of classes.")] = 2,
    seconds: Annotated[int, typer.Option(min=60, help="Length of each recording.")] = 120,
    evidence: Annotated[
        str,
        typer.Option(help="state (intermittent slowing), burst (isolated sharp waves) or trait (continuous slowing)."),
    ] = "state",
    sites: Annotated[int, typer.Option(min=1, help="Number of sites, a column of participants.tsv.")] = 1,
    site_shift: Annotated[
        str | None, typer.Option(help=f"What sites differ in, comma-separated: {', '.join(SITE_SHIFTS)}.")
    ] = None,
    seed: options.Seed = 0,
    jobs: options.Cores = None,
) -> Any:
    """Write a synthetic cohort as BIDS with EDF files; the true evidence is in each events.tsv.

    Example: `bridgemil synth synthetic && bridgemil prepare synthetic synthetic.cohort --label group`
    """
    from bridgemil.cohort.synthetic import SynthSettings, synthesise
    from bridgemil.settings import parse

    given = {"subjects": subjects, "classes": classes, "seconds": seconds, "evidence": evidence, "seed": seed}
    given |= {"sites": sites, "site_shift": options.names(site_shift) or ()}
    settings = parse(SynthSettings, given)
    synthesise(out, settings, jobs)
    typer.echo(f"{subjects} recordings of {seconds} s in {out}" + (f", {sites} sites" if sites > 1 else ""))
    typer.echo(f"\nNext: bridgemil prepare {out} {out.name}.cohort --label group")
    return {"path": str(out), "label": "group", **settings.model_dump()}
