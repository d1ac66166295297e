"""The command line: one file a verb, each a shell over a Python function.

Exit codes: 0 done, 1 a finding or bad data, 2 bad use (a path that is not there is one), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from bridgemil.cli import (
    audit,
    benchmark,
    clean,
    demo,
    evaluate,
    explain,
    folds,
    inspect,
    manifest,
    predict,
    prepare,
    report,
    study,
    synth,
    train,
    verify,
)

INTERRUPTED = 130
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="From EEG recordings to an honest subject-level diagnosis model.",
)
VERBS = (
    demo, synth, manifest, prepare, inspect, folds, verify, audit, evaluate, benchmark, report, study, explain, train,
    predict,
    clean,
)  # fmt: skip
for verb in VERBS:
    app.command(verb.NAME, no_args_is_help=verb is not demo)(verb.run)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        from bridgemil import __version__

        typer.echo(__version__)
        raise typer.Exit


_usual = warnings.formatwarning


def _plain(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """Our own warnings as a sentence; those of libraries as ever."""
    from bridgemil.errors import BridgeMILWarning, plain

    own = issubclass(category, BridgeMILWarning)
    return f"bridgemil: {plain(str(message))}\n" if own else _usual(message, category, filename, lineno, line)


def main() -> None:
    """Run the command line; errors of this package become one message and an exit code."""
    from bridgemil.errors import STORAGE, BridgeMILError, plain

    warnings.formatwarning = _plain
    try:
        app()
    except BridgeMILError as error:
        typer.echo(f"bridgemil: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        kept = " What was finished is kept: the same command goes on." if error.errno in STORAGE else ""
        named = f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename and error.strerror else str(error)
        typer.echo(f"bridgemil: {plain(named)}.{kept}", err=True)
        sys.exit(1)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer turns Ctrl-C into this code without a word
            typer.echo("bridgemil: interrupted; the same command goes on where it stopped", err=True)
        raise
