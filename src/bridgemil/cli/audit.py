"""``bridgemil audit``: leaks and shortcuts in a cohort and its runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bridgemil.cli import options

NAME = "audit"

asking = partial(typer.Option, rich_help_panel="Checks")
PERMUTE = "Cross-validate this method with shuffled labels: bandpower takes seconds, tangent more."
HOPE = "A difference of accuracy that you want to show, in points: WARN if it needs more subjects."


def run(
    cohort: Annotated[Path, typer.Argument(help="A cohort folder.")],
    runs: Annotated[Path | None, typer.Argument(help="A folder of runs of it, checked too.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the findings as a page.")] = None,
    split: Annotated[Path | None, asking(help="A split file to check.")] = None,
    groups: Annotated[str | None, asking(help="Column whose groups must stay in one fold (person, family).")] = None,
    hope: Annotated[float | None, asking(help=HOPE)] = None,
    permute: Annotated[str | None, asking(help=PERMUTE, metavar="METHOD")] = None,
    permutations: Annotated[int, asking(min=5, help="How many times labels are shuffled for --permute.")] = 20,
    sample: Annotated[int, asking(min=0, help="How many runs are recomputed at most.")] = 5,
    seed: Annotated[int, asking(min=0, help="Of all random choices.")] = 0,
    json: options.Json = False,
) -> None:
    """Look for leaks and shortcuts: what would make a number look better than it is.

    Example: `bridgemil audit adftd.cohort runs --html audit.html`

    Prints PASS, INFO, WARN, FAIL or SKIP for each check, with the evidence and what to do. Exit code 1 on any FAIL.
    """
    from bridgemil.audit import audit
    from bridgemil.report.terminal import audit_levels, audit_lines

    show = not json and typer.get_text_stream("stderr").isatty()
    looked = audit(
        cohort, runs, split=split, groups=groups, hope=hope, permute=permute, permutations=permutations, sample=sample,
        seed=seed, watch=(lambda words: typer.echo(f"looking for {words}", err=True)) if show else None,
    )  # fmt: skip
    if html is not None:
        from bridgemil.report.pages.checks import audit_page
        from bridgemil.report.templating import write

        write(html, audit_page(looked))
    if json:
        options.print_json(looked.to_dict() | {"html": None if html is None else str(html)})
    else:
        for line, colour in audit_levels(looked):
            typer.echo(typer.style(line, fg=colour, bold=True))
        typer.echo()
        for line, colour in audit_lines(looked):
            status, _, rest = line.partition(" ") if colour else ("", "", line)
            typer.echo((typer.style(status, fg=colour, bold=True) + " " if colour else "") + rest)
        typer.echo(f"\n{looked.seconds:.1f} s" + (f"\nPage: {html}" if html is not None else ""))
    if looked.failed:
        raise typer.Exit(1)
