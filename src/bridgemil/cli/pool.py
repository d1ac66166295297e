"""``bridgemil pool``: several cohorts to one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options


def run(
    paths: Annotated[list[Path], typer.Argument(help="Two or more cohorts, then the new one.", metavar="COHORT… OUT")],
    sites: Annotated[str | None, typer.Option(help="Site of each: athens,kyiv.  [default: the folders' names]")] = None,
    classes: Annotated[str | None, typer.Option(help="Classes to keep, with optional new names: A=AD,C=HC.")] = None,
    *,
    progress: bool,
) -> Any:
    """Join cohorts of several sites into one, with the electrodes they share and a column `site`.

    Example: `bridgemil pool adftd.cohort eegmat.cohort both.cohort --classes AD,HC,healthy=HC`

    The cohorts must have been prepared with the same rate, window and band. Signals are hard links where no electrode
    is left out.
    """
    from bridgemil.cohort.pool import pool
    from bridgemil.errors import BadUse

    if len(paths) < 3:
        raise BadUse("pool needs two or more cohorts and a new folder: bridgemil pool A.cohort B.cohort OUT")
    *cohorts, out = paths
    pooled = pool(cohorts, out, sites=options.names(sites), classes=options.mapping(classes), progress=progress)
    return options.show(pooled, f"Next: bridgemil audit {out}") | {"pooled": pooled.metadata["pooled"]}
