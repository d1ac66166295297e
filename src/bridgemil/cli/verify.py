"""``bridgemil verify``: compare a cohort, a folder of runs or a bundle with its checksums."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def run(
    path: Annotated[str, typer.Argument(help="Cohort, folder of runs, or model (bundle).")],
    *,
    progress: bool,
) -> Any:
    """Compare every file of a cohort, a folder of runs or a bundle with its checksum.

    Example: `bridgemil verify adftd.cohort`

    Example: `bridgemil verify runs --json`

    Exit code 1 if a file was changed, truncated, is missing or is not a regular file. Checksums detect damage and
    edits; they are not signatures.
    """
    from bridgemil.verify import shown, verify

    report = verify(path, progress=progress)
    for line in report.findings:
        typer.echo(f"WRONG  {line}")
    for line in report.remarks:
        typer.echo(f"note   {line}")
    kind = "folder of runs" if report.kind == "runs" else report.kind
    found = len(report.findings)
    good = "nothing to compare" if report.is_empty else "nothing wrong"
    outcome = good if not found else "1 finding" if found == 1 else f"{found} findings"
    typer.echo(f"{shown(str(report.path))}: {kind}, {report.checked} artifacts, {outcome}")
    return report.to_dict(), bool(found)
