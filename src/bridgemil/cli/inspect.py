"""``bridgemil inspect``: a summary and a figure of a cohort."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options


def run(
    cohort: options.CohortFolder,
    picture: Annotated[Path | None, typer.Option(help="Figure file.  [default: COHORT/inspect.png]")] = None,
    *,
    progress: bool,
) -> Any:
    """Show subjects, durations, channels and exclusions of a cohort; plot power spectra by class.

    Example: `bridgemil inspect adftd.cohort`
    """
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.errors import one_of
    from bridgemil.report.figures import draw_cohort

    opened = Cohort.open(cohort)
    target = picture or cohort / "inspect.png"
    one_of(f"{target}: the suffix", target.suffix.lower(), (".png", ".pdf", ".svg", ".jpg"))
    draw_cohort(opened, target, show=progress)
    return options.show(opened, f"Figure: {target}") | {"picture": str(target)}
