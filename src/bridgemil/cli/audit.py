"""``bridgemil audit``: leaks and shortcuts in a cohort and its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridgemil.cli import options

PERMUTE = "Cross-validate this method with permuted labels: bandpower takes seconds, tangent longer."
DIFFERENCE = "Difference in accuracy to be shown, in points: WARN if it needs more subjects."


def run(
    cohort: options.CohortFolder,
    runs: Annotated[Path | None, typer.Argument(help="Folder of runs of this cohort, checked too.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the findings to an HTML page.")] = None,
    split: options.Split = None,
    groups: options.Groups = None,
    difference: Annotated[float | None, typer.Option(help=DIFFERENCE)] = None,
    permute: Annotated[str | None, typer.Option(help=PERMUTE, metavar="METHOD")] = None,
    permutations: Annotated[int, typer.Option(min=5, help="Number of permutations for --permute.")] = 20,
    sample: Annotated[int, typer.Option(min=0, help="Maximum number of runs to recompute.")] = 5,
    seed: options.Seed = 0,
    *,
    progress: bool,
) -> Any:
    """Check a cohort and its runs for leaks and shortcuts that inflate results.

    Example: `bridgemil audit adftd.cohort runs --html audit.html`

    Prints PASS, INFO, WARN, FAIL or SKIP for each check, with the evidence and a remedy. Exit code 1 on any FAIL.
    """
    from bridgemil.audit import audit
    from bridgemil.report.terminal import print_audit

    show = progress and typer.get_text_stream("stderr").isatty()
    looked = audit(
        cohort, runs, split=split, groups=groups, difference=difference, permute=permute, permutations=permutations,
        sample=sample, seed=seed, watch=(lambda check: typer.echo(f"checking {check}", err=True)) if show else None,
    )  # fmt: skip
    print_audit(looked)
    if html is not None:
        from bridgemil.report.templating import page, write

        write(html, page("audit.html.j2", heading=f"Audit of {Path(looked.cohort).name}", audit=looked))
        typer.echo(f"Page: {html}")
    return looked.to_dict() | {"html": None if html is None else str(html)}, bool(looked.failed)
