"""``bridgemil clean``: remove selected or failed runs and leftover files."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bridgemil.cli import options


def run(
    runs: options.RunsFolder,
    methods: Annotated[str | None, typer.Option(help="Remove finished runs of these methods.")] = None,
    backbones: Annotated[str | None, typer.Option(help="... on these backbones.")] = None,
    budget: Annotated[str | None, typer.Option(help="... with this budget.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Remove errors and checkpoints of failed runs.")] = False,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Remove checkpoints of interrupted runs.")] = False,
    unused: Annotated[bool, typer.Option("--unused", help="Remove encoders without a run, and all features.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
) -> Any:
    """Remove selected runs, failed runs, and files left by killed processes.

    Example: `bridgemil clean runs --failed`

    Example: `bridgemil clean runs --methods attention --backbones eegnet --dry-run`

    Without options only unused lock files and incomplete folders are removed.
    """
    from bridgemil.engine.clean import clean, leftovers, size
    from bridgemil.errors import BadData, NotFound
    from bridgemil.runs import find_store

    if not (runs / "runs").is_dir():
        raise (BadData if runs.exists() else NotFound)(
            f"{runs}: no folder of runs; name the --out of `bridgemil evaluate` or `benchmark`"
        )
    store = find_store(runs)
    chosen = (options.names(methods) or (), options.names(backbones) or (), options.names(budget) or ())
    going = leftovers(store, *chosen, failed=failed, unfinished=unfinished, unused=unused)
    counts, total = {kind: len(paths) for kind, paths in going.items()}, size(going)
    if not dry_run:
        clean(store, going)
    for kind, count in counts.items():
        typer.echo(f"{'would remove' if dry_run else 'removed'} {count} {kind}")
    typer.echo(f"{total / 1e6:.1f} MB" if counts else "nothing to remove")
    return {"removed": {} if dry_run else counts, "would_remove": counts, "bytes": total}
