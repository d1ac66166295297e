"""``bridgemil verify``: compare a cohort, a folder of runs or a bundle with its checksums."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def run(
    path: Annotated[str, typer.Argument(help="Cohort, folder of runs, model (bundle) or saved classifier.")],
    *,
    progress: bool,
) -> Any:
    """Compare every file of a cohort, a folder of runs, a bundle or a saved classifier with its checksum.

    Example: `bridgemil verify adftd.cohort`

    Example: `bridgemil verify runs --json`

    Exit code 1 if a file was changed, truncated, is missing or is not a regular file. Checksums detect damage and
    edits; they are not signatures.
    """
    from bridgemil.evaluation.statistics import counted
    from bridgemil.verify import shown, verify

    report = verify(path, progress=progress)
    for line in report.findings:
        typer.echo(f"WRONG  {line}")
    for line in report.remarks:
        typer.echo(f"note   {line}")
    kind = "folder of runs" if report.kind == "runs" else report.kind
    found = len(report.findings)
    good = "nothing to compare" if report.is_empty else "nothing wrong"
    outcome = counted(found, "finding") if found else good
    typer.echo(f"{shown(str(report.path))}: {kind}, {counted(report.checked, 'artifact')}, {outcome}")
    return report.to_dict(), bool(found)
