"""``bridgemil inspect``: what a cohort holds, and a picture of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bridgemil.cli import options

NAME = "inspect"


def run(
    cohort: Annotated[Path, typer.Argument(help="A cohort folder.")],
    picture: Annotated[
        Path | None, typer.Option(help="Where to write the picture.  [default: COHORT/inspect.png]")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show a cohort's subjects, minutes, channels and what was left out; draw power spectra by class.

    Example: `bridgemil inspect adftd.cohort`
    """
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.errors import BadUse
    from bridgemil.report.figures import draw_cohort
    from bridgemil.report.terminal import print_summary, summary

    opened = Cohort.open(cohort)
    target = picture or cohort / "inspect.png"
    if target.suffix.lower() not in (".png", ".pdf", ".svg", ".jpg"):
        raise BadUse(f"{target}: a picture is a .png, .pdf, .svg or .jpg file")
    draw_cohort(opened, target, show=not json)
    if json:
        options.print_json(summary(opened) | {"picture": str(target)})
    else:
        print_summary(opened)
        typer.echo(f"\nPicture: {target}")
