"""``bridgemil report``: tables and comparisons of a folder of runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridgemil.cli import options

if TYPE_CHECKING:
    import pandas as pd

    from bridgemil.report.benchmark import BenchmarkReport

LARGE = 10  # megabytes; the size of larger files is printed
PAGES = {"--html": ("report.html",), "--checklist": ("checklist.md", "checklist.html")}  # optional files

select = partial(options.option, panel="Selection")
SPLIT = 'Only this split: a title such as "split seed 0", a split file, or the beginning of its hash; repeatable.'
CHECKLIST = "Write checklist.md and checklist.html: TRIPOD+AI filled in from the records, and risk of bias."
COHORT = "Location of a moved cohort, for --checklist; repeatable."


def run(
    runs: options.RunsFolder,
    out: Annotated[Path | None, typer.Option(help="Folder for the files.  [default: RUNS/report]")] = None,
    methods: Annotated[str | None, select(help="Only these methods; comma-separated.")] = None,
    backbones: Annotated[str | None, select(help="Only networks with these backbones.")] = None,
    budget: Annotated[str | None, select(help="Only networks with this budget.")] = None,
    recipe: Annotated[str | None, select(help="Only networks with this recipe.")] = None,
    split: Annotated[list[str] | None, select(help=SPLIT)] = None,
    windows: Annotated[bool, typer.Option("--windows/--no-windows", help="Write windows.csv (may be large).")] = True,
    html: Annotated[bool, typer.Option("--html", help="Write report.html.")] = False,
    checklist: Annotated[bool, typer.Option("--checklist", help=CHECKLIST)] = False,
    cohort: Annotated[list[Path] | None, typer.Option(help=COHORT)] = None,
    positive: options.Positive = None,
    operating_point: options.OperatingPoint = None,
    prevalence: options.Prevalence = None,
    *,
    progress: bool,
) -> Any:
    """Tables of runs, next to the paper's numbers where comparable, and paired comparisons of methods.

    Example: `bridgemil report runs`

    Example: `bridgemil report runs --backbones covariance --split "split seed 0"`

    Example: `bridgemil report runs --checklist`

    Writes report.md, LaTeX tables, and CSV files including the predictions of all held-out subjects (predictions.csv)
    and windows (windows.csv).
    """
    from bridgemil.errors import BadUse, BridgeMILError, NotFound
    from bridgemil.evaluation.clinical import ClinicalOptions
    from bridgemil.evaluation.diagnostic_accuracy import OperatingPoint
    from bridgemil.report.benchmark import build, with_clinical_options
    from bridgemil.report.checklist import build_checklist, checklist_page, markdown
    from bridgemil.report.choice import Choice
    from bridgemil.report.files import write_files
    from bridgemil.report.pages.results import report_page
    from bridgemil.report.templating import write
    from bridgemil.report.terminal import print_report
    from bridgemil.runs import find_store
    from bridgemil.storage.files import refuse_link

    if not runs.is_dir():
        raise NotFound(f"{runs}: no such folder; expected the --out of `bridgemil evaluate` or `benchmark`")
    if cohort and not checklist:
        raise BadUse("--cohort requires --checklist")
    clinical = ClinicalOptions(positive, OperatingPoint.parse(operating_point), prevalence)
    store, budgets, recipes = find_store(runs), options.names(budget) or (), options.names(recipe) or ()
    chosen = options.names(methods) or (), options.names(backbones) or (), budgets, recipes, tuple(split or ())
    report = build(store, Choice(*chosen))
    with_clinical_options(report, clinical)
    folder = out or store.root / "report"
    if out is None:
        refuse_link(folder)
    try:
        written = write_files(report, folder, windows)
    except OSError as error:
        raise BridgeMILError(f"{folder}: cannot write the files ({error.strerror}); use --out") from None
    pages = dict[str, str]()
    if html:
        pages["report.html"] = report_page(report)
    if checklist:
        filled = build_checklist(report, cohort or ())
        pages |= {"checklist.md": markdown(filled) + "\n", "checklist.html": checklist_page(filled)}
    for name, text in pages.items():
        write(folder / name, text)
        written.append(folder / name)
    if progress:  # it takes a while, and is not shown with --json
        print_report(report)  # after the files: a reader such as `head` may close the pipe early
    sizes = {file.name: file.stat().st_size / 1e6 for file in written}
    listed = [name if size < LARGE else f"{name} ({size:.0f} MB)" for name, size in sizes.items()]
    names = textwrap.fill(", ".join(listed), 78)
    typer.echo(f"Files in {folder}:\n{textwrap.indent(names, '  ')}")
    for option, own in PAGES.items():
        stale = [name for name in own if (folder / name).is_file() and folder / name not in written]
        if stale:
            typer.echo(f"From an earlier report, not updated: {', '.join(stale)} (use {option})")
    return lambda: _content(report, written)


def _content(report: BenchmarkReport, written: Sequence[Path]) -> dict[str, Any]:
    """As ``--json`` prints it."""
    from bridgemil.evaluation.display import records
    from bridgemil.report.files import clinical_table
    from bridgemil.report.splits import over_splits, split_pairs, split_table

    averages, remarks = over_splits(report.cells)
    tables = {
        "experiments": report.table, "comparisons": report.pairs, "splits": split_table(averages),
        "split_comparisons": split_pairs(averages),
    }  # fmt: skip
    content: dict[str, Any] = {name: records(_shares(table)) for name, table in tables.items()}
    content |= {"clinical": records(clinical_table(report)), "warnings": report.warnings}
    return content | {"remarks": [*report.remarks, *remarks], "files": [str(file) for file in written]}


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracies as shares of 1, as ``evaluate --json`` has them; the CSV files have percent."""
    from bridgemil.report.benchmark import PERCENT

    percent = [name for name in table if name in {*PERCENT, "paper", "paper_std", "difference"}]
    return table.assign(**{str(name): table[name].astype(float) / 100 for name in percent})
