"""A benchmark report for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridgemil.errors import plain
from bridgemil.evaluation.statistics import COMPARED, TEST, Comparison, counted, p_text, points
from bridgemil.report import benchmark_sheets as sheets
from bridgemil.report.benchmark_sheets import Sheet
from bridgemil.report.benchmark_splits import OverSplits, over_splits, pool_of
from bridgemil.report.benchmark_table import BenchmarkReport
from bridgemil.report.clinical_sheets import block_sheets
from bridgemil.runs import TITLE, AuditWarning, warning_text

if TYPE_CHECKING:
    from rich.console import Console

MANY_SPLITS = 3  # more of one cohort are shown together only
MANY_PAIRS = 3  # of more, those with a difference are said one by one
STYLES = {"best": "bold", "second": "underline"}


def print_report(report: BenchmarkReport) -> None:
    """The report for a person."""
    from rich.console import Console

    console = Console(highlight=False)
    print_warnings(report.warnings)
    tables, remarks = over_splits(report.cells)
    many = {table.pool for table in tables if table.n_splits > MANY_SPLITS}
    for (cohort, split), block in report.blocks().items():
        cells = [cell for section in block.values() for cell in section]
        if pool_of(cells[0]) in many:
            continue
        _title(console, f"{cohort}, {split}")
        for sheet in [*sheets.scores(block), *sheets.beside_the_paper(block)]:
            print_sheet(console, sheet)
        _say(console, [*sheets.facts(cells), sheets.INTERVAL, *sheets.caveats(cells)])
        for sheet in block_sheets(block):
            print_sheet(console, sheet)
        for place in block:
            _print_comparisons(console, place.title, report.comparisons.get(place, []))
        _say(console, [COMPARED] if any(place in report.comparisons for place in block) else [])
    for table in tables:
        _print_splits(console, table)
    _say(console, [*report.remarks, *remarks])


def print_warnings(warnings: Sequence[AuditWarning]) -> None:
    """Print audit warnings between two rules, one line each; nothing where there are none.

    Parameters
    ----------
    warnings
        As ``Results.warnings`` holds them.
    """
    from rich.console import Console
    from rich.text import Text

    if not warnings:
        return
    console = Console(highlight=False)
    console.rule(Text(TITLE, "bold"), align="left", style="yellow")
    for warning in warnings:  # never wrapped here: a line can be searched for
        style = "bold red" if warning["level"] == "FAIL" else "yellow"
        console.print(Text(plain(warning_text(warning)), style), soft_wrap=True)
    console.rule(style="yellow")


def _print_splits(console: Console, table: OverSplits) -> None:
    _title(console, f"{table.cohort}, {counted(table.n_splits, 'split')} of {table.dealt}")
    for sheet in [*sheets.splits(table), *sheets.split_differences(table)]:
        print_sheet(console, sheet)
    cells = [row.first for rows in table.rows.values() for row in rows]
    _say(console, [*sheets.split_facts(table), *sheets.facts(cells)])
    if table.n_splits > MANY_SPLITS:
        seed = cells[0].split.split_seed
        _say(console, [f'Each split by itself: in report.md, or with --split "split seed {seed}".'])


def print_sheet(console: Console, sheet: Sheet) -> None:
    """A table with its title and the sentences below it."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, name in enumerate(sheet.columns):  # in a narrow terminal a method's name is broken, never a number
        if i == 0:
            table.add_column(escape(name), overflow="fold", min_width=16)
        else:
            table.add_column(escape(name), justify="right", no_wrap=True)
    for i, row in enumerate(sheet.rows):
        marks = [sheet.marks.get((i, j)) for j in range(len(row))]
        table.add_row(*(Text(word, STYLES[mark] if mark else "") for word, mark in zip(row, marks, strict=True)))
    console.print(Text(sheet.title, "bold"))
    console.print(table)
    _say(console, sheet.after)


def _print_comparisons(console: Console, title: str, compared: Sequence[Comparison]) -> None:
    """Each pair in a sentence; many of them, gathered by what they show."""
    if not compared:
        return
    said = [f"- {c.corrected_sentence}" for c in compared] if len(compared) <= MANY_PAIRS else _gathered(compared)
    _say(console, [f"{title}, on the same subjects and folds:", *said])


def _gathered(compared: Sequence[Comparison]) -> list[str]:
    """A line for each method that is better than others; and how many pairs show no significant difference."""
    better: dict[str, list[str]] = {}
    for c in compared:
        if c.significant:
            winner, loser = c.ahead
            better.setdefault(winner, []).append(f"{loser} ({points(abs(c.difference))}, {p_text(c.p_holm)})")
    lines = [f"- {winner} is more accurate than {', '.join(losers)}." for winner, losers in sorted(better.items())]
    rest = sum(not c.significant for c in compared)
    if rest:
        others = counted(rest, "other pair") if better else f"any of the {rest} pairs"
        lines.append(f"- No significant difference between {others}.")
    return [*lines, f"p: {TEST}, Holm-corrected for {len(compared)} comparisons. Each pair is in report.md."]


def _title(console: Console, words: str) -> None:
    from rich.text import Text

    console.print(Text(words, "bold reverse"))
    console.print()


def _say(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, markup=False)
    if lines:
        console.print()
