"""A benchmark report as files: Markdown, LaTeX, and CSV down to every held-out subject and window."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil.evaluation.statistics import COMPARED
from bridgemil.report import tables, templating
from bridgemil.report.benchmark import BenchmarkReport, Cell, runs_of
from bridgemil.report.splits import SPLITS, over_splits, split_pairs, split_table
from bridgemil.report.tables import VERDICT, Sheet
from bridgemil.runs import warning_names
from bridgemil.storage.files import new_file, write_text

if TYPE_CHECKING:
    import pandas as pd

NOTES = {  # in the captions of each LaTeX file
    "table": "", "scores": tables.INTERVAL, "clinical": "", "sites": "", "splits": SPLITS,
    "comparisons": f"Points: the first method's accuracy minus the second's. {COMPARED} {VERDICT}",
}  # fmt: skip
LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$", "[": "{[}", "]": "{]}", "*": "{*}",
    "\n": " ", "\r": " ",
} | {character: "\\" + character for character in "_%#&${}"}  # fmt: skip
MARKS = {"best": r"\textbf{%s}", "second": r"\underline{%s}", None: "%s"}


def write_files(report: BenchmarkReport, folder: Path, windows: bool = True) -> list[Path]:
    """Write all files of a report, each atomically, and return their paths.

    ``windows.csv``, one row per window of every held-out subject, may be large: ``windows=False`` omits it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    averages, _ = over_splits(report.cells)
    found = {
        "table": report.table, "comparisons": report.pairs, "splits": split_table(averages),
        "split_comparisons": split_pairs(averages), "clinical": clinical_table(report),
        "predictions": predictions(report),
    }  # fmt: skip
    if len(sites := sites_table(report)):
        found["sites"] = sites
    texts = {"report.md": markdown(report)} | {f"{name}.csv": _csv(table) for name, table in found.items()}
    texts |= {f"{name}.tex": text for name, text in latex(report).items() if name != "sites" or name in found}
    for name, text in texts.items():
        write_text(folder / name, text.rstrip() + "\n")
    if windows:
        _write_windows(report, folder / "windows.csv")
    return [folder / name for name in (*texts, *(["windows.csv"] if windows else []))]


def _csv(table: pd.DataFrame, **how: Any) -> str:
    text: str = table.to_csv(index=False, lineterminator="\n", **how)
    return text


def _names(cell: Cell) -> dict[str, Any]:
    """Columns that the rows of an experiment have in common."""
    place = cell.place
    return {
        "cohort": place.cohort, "split": place.split, "method": cell.method, "backbone": place.backbone or None,
        "recipe": place.recipe or None, "budget": place.budget or None, "settings_hash": cell.row["settings_hash"],
        "warnings": warning_names(cell.results.warnings),
    }  # fmt: skip


def _joined(parts: Sequence[tuple[dict[str, Any], pd.DataFrame]]) -> pd.DataFrame:
    """Tables below each other, each with its constant columns first."""
    import pandas as pd

    found = [table.assign(**names)[[*names, *table.columns]] for names, table in parts]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def predictions(report: BenchmarkReport) -> pd.DataFrame:
    """One row per held-out subject of every experiment and seed; empty for classes that a cohort does not have."""
    return _joined([(_names(cell), cell.results.predictions) for cell in report.cells if not cell.averaged])


def clinical_table(report: BenchmarkReport) -> pd.DataFrame:
    """One row per experiment and clinical measure, with its value, interval and operating point."""
    return _joined([
        ({**_names(cell), "seeds_averaged": cell.averaged > 0,
          "operating_point": str(cell.results.clinical_options.operating_point)}, cell.results.clinical.table)
        for cell in report.cells
    ])  # fmt: skip


def sites_table(report: BenchmarkReport) -> pd.DataFrame:
    """One row per experiment and group that was left out; empty where none was."""
    return _joined([
        (_names(cell) | {"adjustment": cell.results.adjustment}, cell.results.groups)
        for cell in report.cells
        if not cell.averaged and len(cell.results.groups)
    ])  # fmt: skip


def _write_windows(report: BenchmarkReport, path: Path) -> None:
    """Run after run, so that only one fold's windows are in memory."""
    import pandas as pd

    classes = dict.fromkeys(name for cell in report.cells for name in cell.results.classes)
    columns = [*_names(report.cells[0]), "seed", "fold", "subject", "window", "second", "gate"]
    columns += [f"{part}_{name}" for part in ("contribution", "p") for name in classes]
    with new_file(path) as stream:
        stream.write(_csv(pd.DataFrame(columns=columns)).encode())
        for table in _windows(report):
            stream.write(_csv(table.reindex(columns=columns), header=False, float_format="%.6g").encode())


def _windows(report: BenchmarkReport) -> Iterator[pd.DataFrame]:
    """Windows of each run; for an ensemble, those of its members."""
    seen = set[tuple[str, str]]()
    for cell in (cell for cell in report.cells if not cell.averaged):
        for results in cell.results.members.values() or [cell.results]:
            names, runs = _names(replace(cell, results=results)), runs_of(results, cell.split)
            for identity, seed, fold in runs:
                if (identity, cell.split.hash) in seen:
                    continue
                table = report.store.table(identity, "windows.parquet")
                if len(table):
                    yield table.assign(**names, seed=seed, fold=fold)
            seen.update((identity, cell.split.hash) for identity, *_ in runs)


def markdown(report: BenchmarkReport) -> str:
    """The report as Markdown: means over splits, then for each split Table 1's layout, scores and comparisons."""
    averages, not_averaged = over_splits(report.cells)
    return templating.text(
        "report.md.j2", warnings=report.warnings, averages=averages, blocks=tables.blocks(report),
        notes=f"{COMPARED} {VERDICT}", remarks=[*report.remarks, *not_averaged],
    )  # fmt: skip


def latex(report: BenchmarkReport) -> dict[str, str]:
    """LaTeX tables (booktabs) by file name: Table 1's layout, scores, clinical metrics, comparisons, splits."""
    found: dict[str, list[tuple[str, Sheet]]] = {name: [] for name in NOTES}
    for block in tables.blocks(report):
        named = {"scores": block.scores, "clinical": block.clinical, "sites": block.sites, "comparisons": block.pairs}
        found["table"].append(("", block.overview))
        for name, sheets in named.items():
            found[name] += [(f"{block.title}, ", sheet) for sheet in sheets]
    for table in over_splits(report.cells)[0]:
        found["splits"] += [(f"{table.title}, ", sheet) for sheet in table.sheets()]
    audit = f"Audit warnings (see report.md): {warning_names(report.warnings)}." if report.warnings else ""
    texts = {}
    for name, own in found.items():
        notes = [note for note in (NOTES[name], audit) if note]
        pieces = [r"% needs \usepackage{booktabs}", *(_tex_table(sheet, title, notes) for title, sheet in own)]
        texts[name] = "\n".join(pieces)
    return texts


def _tex_table(sheet: Sheet, title: str, notes: Sequence[str]) -> str:
    import pandas as pd

    rows = [
        [MARKS[sheet.marks.get((i, j))] % _tex(text) for j, text in enumerate(row)] for i, row in enumerate(sheet.rows)
    ]
    caption = _tex(" ".join([f"{title}{sheet.title}.", *sheet.after, *notes]))
    frame = pd.DataFrame(rows, columns=[_tex(name) for name in sheet.columns])
    layout = "l" + "c" * (len(sheet.columns) - 1)
    text: str = frame.to_latex(index=False, escape=False, column_format=layout, caption=caption)
    return text


def _tex(text: str) -> str:
    """Plain text in LaTeX; a number's sign is a minus sign, not a hyphen."""
    indent = r"\quad " if text.startswith("  ") else ""
    escaped = "".join(LATEX.get(character, character) for character in text.strip())
    escaped = re.sub(r"(?<=\d) - (?=\d)", "--", escaped)
    return indent + re.sub(r"(?<![\w.-])[+-]\d[\d.]*\d|(?<![\w.-])[+-]\d", r"$\g<0>$", escaped)
