"""The command line: one file per verb, each calls a Python function.

Exit codes: 0 success, 1 a finding or bad data, 2 bad use (including paths that do not exist), 130 interrupted.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import warnings
from typing import Annotated

import typer

from bridgemil.cli import options

INTERRUPTED = 130
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Subject-level diagnosis from EEG: from recordings to an evaluated, calibrated model.",
)
VERBS = (
    "demo synth datasets download manifest prepare pool inspect folds verify audit evaluate benchmark report study "
    "reproduce explain train predict validate adapt clean"
).split()
for verb in VERBS:
    module = importlib.import_module(f"bridgemil.cli.{verb}")
    app.command(verb, no_args_is_help=verb not in ("demo", "datasets"))(options.verb(module.run))


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        from bridgemil import __version__

        typer.echo(__version__)
        raise typer.Exit


_usual = warnings.formatwarning


def _plain(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """Format warnings of this package as one sentence; those of libraries as usual."""
    from bridgemil.errors import BridgeMILWarning, plain

    own = issubclass(category, BridgeMILWarning)
    return f"bridgemil: {plain(str(message))}\n" if own else _usual(message, category, filename, lineno, line)


def main() -> None:
    """Run the command line; an error of this package becomes one message and an exit code."""
    from bridgemil.errors import STORAGE, BridgeMILError, plain

    warnings.formatwarning = _plain
    if isinstance(sys.stdout, io.TextIOWrapper):  # a console of another encoding than UTF-8 shows ? for what it lacks
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
    except BridgeMILError as error:
        typer.echo(f"bridgemil: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        kept = " Finished work is kept: the same command resumes." if error.errno in STORAGE else ""
        named = f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename and error.strerror else str(error)
        typer.echo(f"bridgemil: {plain(named)}.{kept}", err=True)
        sys.exit(1)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer maps Ctrl-C to this code without a message
            typer.echo("bridgemil: interrupted; the same command resumes", err=True)
        raise
