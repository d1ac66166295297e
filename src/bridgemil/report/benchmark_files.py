"""A benchmark report as files: Markdown, LaTeX, and CSV down to every held-out subject and window."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.evaluation.statistics import COMPARED, counted
from bridgemil.report import benchmark_sheets as sheets
from bridgemil.report.benchmark_sheets import Sheet
from bridgemil.report.benchmark_splits import as_table, over_splits, split_pairs
from bridgemil.report.benchmark_table import BenchmarkReport, Cell, runs_of
from bridgemil.report.clinical_sheets import block_sheets
from bridgemil.report.markdown import md_lines, md_sheet, md_table, md_warnings
from bridgemil.report.markdown import md_text as _md
from bridgemil.runs import warning_names
from bridgemil.storage.files import new_file

if TYPE_CHECKING:
    import pandas as pd

POINTS = f"Points: the first method's accuracy minus the second's. {COMPARED}"
LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$", "[": "{[}", "]": "{]}", "*": "{*}",
    "\n": " ", "\r": " ",
}  # fmt: skip
LATEX |= {character: "\\" + character for character in "_%#&${}"}


def write_files(report: BenchmarkReport, folder: Path, windows: bool = True) -> list[Path]:
    """Everything into a folder; each file appears whole.

    Parameters
    ----------
    report
        What to write.
    folder
        Made if it is not there.
    windows
        Write windows.csv too, a row a window of every held-out subject: it may be large.
    """
    folder.mkdir(parents=True, exist_ok=True)
    averages, _ = over_splits(report.cells)
    texts = {
        "report.md": markdown(report),
        "table.csv": _csv(report.table),
        "comparisons.csv": _csv(report.pairs),
        "splits.csv": _csv(as_table(averages)),
        "split_comparisons.csv": _csv(split_pairs(averages)),
        "clinical.csv": _csv(clinical_table(report)),
        "predictions.csv": _csv(predictions(report)),
    }
    texts |= {f"{name}.tex": text for name, text in latex(report).items()}
    for name, text in texts.items():
        with new_file(folder / name) as stream:
            stream.write(text.encode())
    written = [folder / name for name in texts]
    if windows:
        written.append(folder / "windows.csv")
        _write_windows(report, written[-1])
    return written


def _csv(table: pd.DataFrame) -> str:
    text: str = table.to_csv(index=False, lineterminator="\n")
    return text


def _names(cell: Cell) -> dict[str, Any]:
    """What the rows of an experiment have in common."""
    place = cell.place
    return {
        "cohort": place.cohort, "split": place.split, "method": cell.method, "backbone": place.backbone or None,
        "recipe": place.recipe or None, "budget": place.budget or None, "settings_hash": cell.row["settings_hash"],
        "warnings": warning_names(cell.results.warnings),
    }  # fmt: skip


def predictions(report: BenchmarkReport) -> pd.DataFrame:
    """A row a held-out subject of every experiment and seed; classes that a cohort does not have stay empty."""
    import pandas as pd

    tables = []
    for cell in report.cells:
        if not cell.averaged:
            names = _names(cell)
            tables.append(cell.results.predictions.assign(**names)[[*names, *cell.results.predictions.columns]])
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def clinical_table(report: BenchmarkReport) -> pd.DataFrame:
    """One row per experiment and clinical measure, with its value, interval and operating point."""
    import pandas as pd

    tables = []
    for cell in report.cells:
        point = str(cell.results.clinical_options.operating_point)
        names = _names(cell) | {"seeds_averaged": cell.averaged > 0, "operating_point": point}
        found = cell.results.clinical.table
        tables.append(found.assign(**names)[[*names, *found.columns]])
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _write_windows(report: BenchmarkReport, path: Path) -> None:
    """Run after run, so that no more than a fold's windows are in memory."""
    classes = dict.fromkeys(name for cell in report.cells for name in cell.results.classes)
    columns = [*_names(report.cells[0])] if report.cells else []
    columns += ["seed", "fold", "subject", "window", "second", "gate"]
    columns += [f"{part}_{name}" for part in ("contribution", "p") for name in classes]
    with new_file(path) as stream:
        for i, table in enumerate(_windows(report)):
            text = table.reindex(columns=columns).to_csv(
                index=False, header=i == 0, float_format="%.6g", lineterminator="\n"
            )
            stream.write(text.encode())


def _windows(report: BenchmarkReport) -> Iterator[pd.DataFrame]:
    """The header, then the windows of each run; of an ensemble, those of its members."""
    import pandas as pd

    yield pd.DataFrame()
    seen = set[tuple[str, str]]()
    for cell in report.cells:
        for results in cell.results.members.values() or [cell.results]:
            member = Cell(cell.cohort, results.name, cell.source, cell.split, results, cell.split_title)
            for identity, seed, fold in [] if cell.averaged else runs_of(results, cell.split):
                if (identity, cell.split.hash) not in seen:
                    seen.add((identity, cell.split.hash))
                    table = report.store.windows(identity)
                    if len(table):
                        yield table.assign(**_names(member), seed=seed, fold=fold)


def markdown(report: BenchmarkReport) -> str:
    """Table 1's layout, the scores, what the comparisons show, and the means over splits."""
    averages, unaveraged = over_splits(report.cells)
    lines = [
        "# Results",
        *md_warnings(report.warnings),
        "",
        "Subject-level accuracy in percent, mean ± standard deviation over seeds. **Best** and <ins>second</ins>: in "
        "the first table of a split, of the networks of a row; in the next ones, of the whole split.",
    ]
    for table in averages:
        title = f"{table.cohort}, {counted(table.n_splits, 'split')} of {table.dealt}"
        lines += ["", f"## {_md(title)}"]
        for sheet in [*sheets.splits(table), *sheets.split_differences(table)]:
            lines += md_sheet(sheet)
        first = [row.first for rows in table.rows.values() for row in rows]
        lines += md_lines([*sheets.split_facts(table), *sheets.facts(first)])
    for overview, block in zip(sheets.table1(report), report.blocks().values(), strict=True):
        lines += ["", f"## {_md(overview.title)}", *md_lines(overview.before)]
        lines += md_table(overview) if overview.rows else []
        for sheet in sheets.scores(block):
            lines += md_sheet(sheet)
        lines += md_lines(overview.after)
        for sheet in block_sheets(block):
            lines += md_sheet(sheet)
        for place in block:
            if place in report.comparisons:
                lines += md_sheet(sheets.comparisons(report.comparisons[place], f"{place.title}: pairs of methods"))
    remarks = [*report.remarks, *unaveraged]
    if remarks:
        lines += ["", "## Not in the tables", "", *(f"- {_md(line)}" for line in remarks)]
    return "\n".join(lines) + "\n"


def latex(report: BenchmarkReport) -> dict[str, str]:
    """By name of the file, for booktabs: Table 1's layout, scores, clinical metrics, comparisons, means over splits."""
    averages, _ = over_splits(report.cells)
    scores, clinical, pairs, means, less = (list[Sheet]() for _ in range(5))
    for (cohort, split), block in report.blocks().items():
        scores += [_within(sheet, f"{cohort}, {split}") for sheet in sheets.scores(block)]
        clinical += [_within(sheet, f"{cohort}, {split}") for sheet in block_sheets(block)]
        for place in block:
            if place in report.comparisons:
                pairs.append(sheets.comparisons(report.comparisons[place], f"{cohort}, {split}, {place.title}"))
    for table in averages:
        title = f"{table.cohort}, {counted(table.n_splits, 'split')} of {table.dealt}"
        means += [_within(sheet, title) for sheet in sheets.splits(table)]
        less += [_within(sheet, title) for sheet in sheets.split_differences(table)]
    tables = {
        "table": sheets.table1(report), "scores": scores, "clinical": clinical, "comparisons": pairs,
        "splits": [*means, *less],
    }  # fmt: skip
    feet = {"table": "", "scores": sheets.INTERVAL, "clinical": "", "splits": sheets.SPLITS, "comparisons": POINTS}
    found = f"Audit warnings (see report.md): {warning_names(report.warnings)}." if report.warnings else ""
    return {name: _tex_file(sheet, f"{found} {feet[name]}".strip()) for name, sheet in tables.items()}


def _within(sheet: Sheet, title: str) -> Sheet:
    return replace(sheet, title=f"{title}, {sheet.title}")


def _tex_file(found: Sequence[Sheet], foot: str) -> str:
    """Sheets of the same columns share a tabular."""
    lines = [r"% needs \usepackage{booktabs}"]
    if not found:
        lines.append("% nothing to show here")
    columns: list[str] | None = None
    for sheet in found:
        if list(sheet.columns) != columns:
            lines += [*_tex_end(columns, foot), ""] if columns is not None else []
            columns = list(sheet.columns)
            lines += [rf"\begin{{tabular}}{{l{'c' * (len(columns) - 1)}}}", r"\toprule", _tex_row(columns)]
        lines += _tex_section(sheet)
    if columns is not None:
        lines += _tex_end(columns, foot)
    return "\n".join(lines) + "\n"


def _tex_end(columns: Sequence[str] | None, foot: str) -> list[str]:
    note = [_tex_wide(foot, len(columns or ()))] if foot else []
    return [r"\bottomrule", *note, r"\end{tabular}"]


def _tex_section(sheet: Sheet) -> list[str]:
    marks = {"best": r"\textbf{%s}", "second": r"\underline{%s}", None: "%s"}
    width = len(sheet.columns)
    lines = [r"\midrule", rf"\multicolumn{{{width}}}{{c}}{{{_tex(sheet.title)}}} \\", r"\midrule"]
    lines += [_tex_wide(line, width) for line in sheet.before]
    for i, row in enumerate(sheet.rows):
        cells = [marks[sheet.marks.get((i, j))] % _tex(word) for j, word in enumerate(row)]
        lines.append(rf"{' & '.join(cells)} \\")
    return lines + [_tex_wide(line, width) for line in sheet.after]


def _tex_wide(line: str, width: int) -> str:
    return rf"\multicolumn{{{width}}}{{p{{.9\linewidth}}}}{{\footnotesize {_tex(line)}}} \\"


def _tex_row(words: Sequence[str]) -> str:
    return rf"{' & '.join(map(_tex, words))} \\"


def _tex(text: str) -> str:
    """Plain words in LaTeX; a number's sign is a sign, not a hyphen."""
    indent = r"\quad " if text.startswith("  ") else ""
    words = "".join(LATEX.get(character, character) for character in text.strip())
    words = re.sub(r"(?<=\d) - (?=\d)", "--", words)
    return indent + re.sub(r"(?<![\w.-])[+-]\d[\d.]*\d|(?<![\w.-])[+-]\d", r"$\g<0>$", words)
