"""``bridgemil verify``: whether a cohort, a folder of runs or a bundle is still what was written."""

from __future__ import annotations

from typing import Annotated

import typer

from bridgemil.cli import options

NAME = "verify"


def run(
    path: Annotated[str, typer.Argument(help="A cohort, a folder of runs, or a model (a bundle).")],
    json: options.Json = False,
) -> None:
    """Check every file of a cohort, a folder of runs or a bundle against the hashes that were written along.

    Example: `bridgemil verify adftd.cohort`

    Example: `bridgemil verify runs --json`

    Exit code 1 if anything was changed, cut short, is missing or is no regular file. Hashes show damage and edits; who
    wants to deceive can write new ones.
    """
    from bridgemil.integrity import shown, verify

    verdict = verify(path, progress=not json)
    if json:
        options.print_json(verdict.for_json())
    else:
        for line in verdict.findings:
            typer.echo(f"WRONG  {line}")
        for line in verdict.remarks_in_short:
            typer.echo(f"note   {line}")
        kind = {"cohort": "cohort", "runs": "folder of runs", "bundle": "bundle"}[verdict.kind]
        found = len(verdict.findings)
        good = "nothing to check" if verdict.is_empty else "nothing wrong"
        words = good if not found else "1 finding" if found == 1 else f"{found} findings"
        typer.echo(f"{shown(str(verdict.path))}: {kind}, {verdict.checked} checks, {words}")
    if verdict.findings:
        raise typer.Exit(1)
