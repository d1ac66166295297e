"""``bridgemil report``: what a folder of runs shows."""

from __future__ import annotations

import textwrap
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    import pandas as pd

NAME = "report"
LARGE = 10  # megabytes worth saying

showing = partial(typer.Option, rich_help_panel="What to show")
SPLIT = 'Only this split: words such as "split seed 0", a split file, or the beginning of its hash. May be repeated.'

CHECKLIST = "Write checklist.md and checklist.html too: TRIPOD+AI filled in from the records, and risk of bias."
PAGES = {"--html": ("report.html",), "--checklist": ("checklist.md", "checklist.html")}  # only if asked for
COHORT = "For --checklist, a cohort that is no longer where the runs found it. May be repeated."


def run(
    runs: Annotated[Path, typer.Argument(help="A folder of runs, from `benchmark` or `evaluate`.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the files.  [default: RUNS/report]")] = None,
    methods: Annotated[str | None, showing(help="Only these methods; comma-separated.")] = None,
    backbones: Annotated[str | None, showing(help="Only networks on these backbones.")] = None,
    budget: Annotated[str | None, showing(help="Only networks with this budget.")] = None,
    recipe: Annotated[str | None, showing(help="Only networks of this recipe.")] = None,
    split: Annotated[list[str] | None, showing(help=SPLIT)] = None,
    windows: Annotated[
        bool, typer.Option("--windows/--no-windows", help="Write windows.csv, which may be large.")
    ] = True,
    html: Annotated[bool, typer.Option("--html", help="Write report.html too, a page to open in a browser.")] = False,
    checklist: Annotated[bool, typer.Option("--checklist", help=CHECKLIST)] = False,
    cohort: Annotated[list[Path] | None, typer.Option(help=COHORT)] = None,
    positive: options.Positive = None,
    operating_point: options.OperatingPoint = None,
    prevalence: options.Prevalence = None,
    json: options.Json = False,
) -> None:
    """Tables of these runs, beside the paper's numbers, and comparisons with what they do not show.

    Example: `bridgemil report runs`

    Example: `bridgemil report runs --backbones covariance --split "split seed 0"`

    Example: `bridgemil report runs --checklist`

    Writes report.md, LaTeX tables, and CSV files down to the predictions of every held-out subject (predictions.csv)
    and window (windows.csv).
    """
    from bridgemil.errors import BadUse, BridgeMILError, NotFound
    from bridgemil.evaluation.clinical import ClinicalOptions
    from bridgemil.report.benchmark import Choice, build
    from bridgemil.report.files import clinical_table, write_files
    from bridgemil.report.tables import with_clinical_options
    from bridgemil.report.terminal import print_report
    from bridgemil.runs import find_store
    from bridgemil.storage.files import refuse_link

    if not runs.is_dir():
        raise NotFound(f"{runs}: no such folder; name the --out of `bridgemil evaluate` or `benchmark`")
    if cohort and not checklist:
        raise BadUse("--cohort is for --checklist; give both")
    clinical = ClinicalOptions.of(positive, operating_point, prevalence)
    chosen = [options.names(text) or () for text in (methods, backbones, budget, recipe)]
    choice = Choice(chosen[0], chosen[1], chosen[2], chosen[3], tuple(split or ()))
    store = find_store(runs)
    report = build(store, choice)
    with_clinical_options(report, clinical)
    folder = out or store.root / "report"
    if out is None:
        refuse_link(folder)
    try:
        written = write_files(report, folder, windows)
    except OSError as error:
        raise BridgeMILError(f"{folder}: the files cannot be written ({error.strerror}); give --out") from None
    if html:
        from bridgemil.report.pages.results import report_page
        from bridgemil.report.templating import write

        write(folder / "report.html", report_page(report, store))
        written.append(folder / "report.html")
    if checklist:
        from bridgemil.report.checklist import build_checklist, markdown
        from bridgemil.report.pages.checks import checklist_page
        from bridgemil.report.templating import write

        filled = build_checklist(report, cohort or ())
        for name, text in (("checklist.md", markdown(filled) + "\n"), ("checklist.html", checklist_page(filled))):
            write(folder / name, text)
            written.append(folder / name)
    if json:
        from bridgemil.report.splits import over_splits, split_pairs, split_table

        averages, remarks = over_splits(report.cells)
        tables = {"experiments": report.table, "comparisons": report.pairs, "splits": split_table(averages)}
        tables["split_comparisons"] = split_pairs(averages)
        content = {name: _rows(_shares(table)) for name, table in tables.items()}
        content["clinical"] = _rows(clinical_table(report))
        more: dict[str, Any] = {"warnings": report.warnings}
        more |= {"remarks": [*report.remarks, *remarks], "files": [str(file) for file in written]}
        options.print_json(content | more)
        return
    print_report(report)  # after the files: a reader such as `head` may close the pipe early
    names = textwrap.fill(", ".join(map(_name_and_size, written)), 78)
    typer.echo(f"Files in {folder}:\n{textwrap.indent(names, '  ')}")
    for option, pages in PAGES.items():
        stale = [name for name in pages if (folder / name).is_file() and folder / name not in written]
        if stale:
            typer.echo(f"Of an earlier report, not written anew: {', '.join(stale)} (give {option})")


def _name_and_size(file: Path) -> str:
    size = file.stat().st_size / 1e6
    return file.name if size < LARGE else f"{file.name} ({size:.0f} MB)"


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracies as shares of 1, as ``evaluate --json`` has them; the CSV files have percent."""
    from bridgemil.report.benchmark import PERCENT

    percent = [name for name in table if name in {*PERCENT, "paper", "paper_std", "difference"}]
    return table.assign(**{str(name): table[name].astype(float) / 100 for name in percent})


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows = table.astype(object).where(table.notna(), None).to_dict(orient="records")
    return [{str(name): value for name, value in row.items()} for row in rows]
