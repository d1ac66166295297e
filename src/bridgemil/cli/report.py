"""``bridgemil report``: what a folder of runs shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bridgemil.cli import options

NAME = "report"


def run(
    runs: Annotated[Path, typer.Argument(help="A folder of runs, from `benchmark` or `evaluate`.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the files.  [default: RUNS/report]")] = None,
    json: options.Json = False,
) -> None:
    """Table 1 of these runs, beside the paper's numbers, and pairwise comparisons with what they do not show.

    Example: `bridgemil report runs`

    Writes report.md, table.csv, comparisons.csv and table.tex too.
    """
    from bridgemil.errors import BadData, BridgeMILError
    from bridgemil.report.benchmark_table import build
    from bridgemil.report.benchmark_text import print_report, write_files
    from bridgemil.runs import RunStore

    if not runs.is_dir():
        raise BadData(f"{runs}: no such folder")
    found = build(RunStore(runs))
    if not json:
        print_report(found)
    folder = out or runs / "report"
    try:
        written = write_files(found, folder)
    except OSError as error:
        raise BridgeMILError(f"{folder}: the files cannot be written ({error.strerror}); give --out") from None
    if json:
        experiments, comparisons = (
            table.astype(object).where(table.notna(), None).to_dict(orient="records")
            for table in (found.table, found.pairs)
        )
        content = {"experiments": experiments, "comparisons": comparisons, "remarks": found.remarks}
        options.print_json(content | {"files": [str(file) for file in written]})
        return
    typer.echo(f"\nFiles: {', '.join(str(file) for file in written)}")
