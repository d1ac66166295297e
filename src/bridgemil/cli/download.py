"""``bridgemil download``: fetch a public data set that needs no login."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer


def run(
    name: Annotated[str, typer.Argument(help="Data set, one of `bridgemil datasets`.")],
    folder: Annotated[Path, typer.Argument(help="Folder for its files.", metavar="DIR")],
    everything: Annotated[bool, typer.Option("--all", help="Fetch all files, not only those `prepare` needs.")] = False,
    *,
    progress: bool,
) -> Any:
    """Fetch a public data set from its host; an interrupted download resumes.

    Example: `bridgemil download adftd adftd`

    Every file is compared with the checksum that the host publishes (or with its size). Exit code 1 if a file differs,
    the host cannot be reached, or the data set needs a login; then the message says how to get it.
    """
    from bridgemil.datasets import card, download

    done = download(name, folder, everything=everything, progress=progress)
    typer.echo(f"{folder}: {len(done.fetched)} files fetched, {len(done.present)} were complete")
    if done.left_out:
        typer.echo(f"{len(done.left_out)} files that `prepare` does not need were left out (--all fetches them)")
    for command in card(name).prepare:
        typer.echo(f"Next: {command.replace(f' {name}', f' {folder}', 1)}")
    return asdict(done)
