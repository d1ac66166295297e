"""A benchmark report for the terminal, and as Markdown, CSV and LaTeX files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from bridgemil.report.benchmark_table import NO_NETWORK, BenchmarkReport, Cell

Mark = Callable[[str], str]


def ranked(cells: Sequence[Cell], best: Mark, second: Mark) -> dict[str, str]:
    """``mean ± std`` of each method, the best and the second best marked; ties share a mark."""
    values = sorted({round(cell.row["accuracy"], 2) for cell in cells}, reverse=True)
    found = {}
    for cell in cells:
        mean, std, steady = cell.row["accuracy"], cell.row["accuracy_std"], cell.place is None
        spread = f" ± {std:.2f}" if cell.row["seeds"] > 1 and not (steady and std == 0) else ""
        text, value = f"{mean:.2f}{spread}", round(mean, 2)
        if len(values) > 1 and value == values[0]:
            text = best(text)
        elif len(values) > 2 and value == values[1]:
            text = second(text)
        found[cell.label] = text
    return found


def print_report(report: BenchmarkReport) -> None:
    """The report for a person."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for (cohort, backbone, budget), cells in report.groups().items():
        table = Table(title=f"{cohort}, {backbone}, budget {budget}", title_justify="left", title_style="bold")
        table.box, table.collapse_padding = SIMPLE_HEAD, True
        columns = ["method", "accuracy", "95 %", "seeds"]
        if any(cell.published for cell in cells):
            columns += ["paper", "ours - paper"]
        for name in columns:  # in a narrow terminal a method's name is broken, never a number
            if name == "method":
                table.add_column(name, overflow="fold")
            else:
                table.add_column(name, justify="right", no_wrap=True)
        marked = ranked(cells, lambda text: f"[bold]{text}[/bold]", lambda text: f"[underline]{text}[/underline]")
        for cell in cells:
            row = [cell.label, marked[cell.label], _interval(cell), str(cell.row["seeds"])]
            table.add_row(*[*row, *_beside(cell)][: len(columns)])
        console.print(table)
        for line in [*_recipes(cells), *_facts(cells[0]), *caveats(cells)]:
            console.print(line, markup=False)
        for one in report.comparisons.get((cohort, backbone, budget), []):
            console.print(f"- {one.sentence}", markup=False)
        console.print()
    for line in report.remarks:
        console.print(line, markup=False)


def _interval(cell: Cell) -> str:
    return f"{cell.row['ci95_low']:.1f} - {cell.row['ci95_high']:.1f}"


def _facts(cell: Cell) -> list[str]:
    """What every number of a cohort and split is to be read with."""
    row = cell.row
    return [
        f"{row['n_subjects']} subjects, each held out once: {row['folds']} folds. 95 %: bootstrap over subjects; what "
        "training anew or another split would change is not in it. ±: standard deviation over seeds (ddof 0).",
        f"Always guessing the largest class: {row['chance']:.1f} (a guesser on so many subjects: "
        f"{row['chance95_low']:.1f} to {row['chance95_high']:.1f}).",
    ]


def _recipes(cells: Sequence[Cell]) -> list[str]:
    """What was not run as its budget has it, and the sub-bag pairs."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        words = [f"{key}={value}" for key, value in cell.changed.items()]
        if cell.row["subbag_pairs"] is not None and "stage1.subbag_pairs" not in cell.changed:
            words.append(f"subbag_pairs {cell.row['subbag_pairs']:.0f}, as the budget has it")
        if words:
            found.setdefault((cell.label, ", ".join(words)), []).append((cell.place or ("", NO_NETWORK))[1])
    return [f"{label} on {', '.join(dict.fromkeys(on))}: {words}" for (label, words), on in found.items()]


def caveats(cells: Sequence[Cell]) -> list[str]:
    """Where the paper's numbers stand beside ours: what is not as in the paper."""
    if not any(cell.published for cell in cells):
        return []
    found = sorted({caveat for cell in cells for caveat in cell.caveats if cell.published})
    if not found:
        return [
            "As in the paper, so far as is known: data set, preparation, subjects, budget, settings, seeds and folds. "
            "Its split is not known."
        ]
    return [f"NOT the paper's setting ({'; '.join(found)}): the difference is not a failed or better repetition."]


def write_files(report: BenchmarkReport, folder: Path) -> list[Path]:
    """table.csv, comparisons.csv, report.md and table.tex."""
    folder.mkdir(parents=True, exist_ok=True)
    report.table.to_csv(folder / "table.csv", index=False)
    report.pairs.to_csv(folder / "comparisons.csv", index=False)
    (folder / "report.md").write_text(markdown(report), encoding="utf-8")
    (folder / "table.tex").write_text(latex(report), encoding="utf-8")
    return [folder / name for name in ("table.csv", "comparisons.csv", "report.md", "table.tex")]


def _columns(report: BenchmarkReport) -> list[str]:
    """Methods, in the paper's order."""
    return list(dict.fromkeys(cell.label for cells in report.groups().values() for cell in cells))


def _beside(cell: Cell) -> tuple[str, str]:
    """The paper's number, and ours less it."""
    if cell.published is None:
        return "", ""
    mean, std = cell.published
    return f"{mean:.2f} ± {std:.2f}", f"{cell.row['accuracy'] - mean:+.2f}"


def _blocks(report: BenchmarkReport) -> dict[tuple[str, str], list[tuple[str, list[Cell]]]]:
    """Table 1's blocks: for a cohort and a budget, the cells of each backbone."""
    found: dict[tuple[str, str], list[tuple[str, list[Cell]]]] = {}
    for (cohort, backbone, budget), cells in report.groups().items():
        found.setdefault((cohort, budget), []).append((backbone, cells))
    return found


def _rows(backbone: str, cells: Sequence[Cell], names: Sequence[str], best: Mark, second: Mark) -> list[list[str]]:
    """A backbone's row of Table 1, and below it the paper's and the differences, where there are any."""
    rows = {backbone: ranked(cells, best, second), f"{backbone}, 95 %": {cell.label: _interval(cell) for cell in cells}}
    if any(cell.published for cell in cells):
        rows[f"{backbone}, paper"] = {cell.label: _beside(cell)[0] for cell in cells}
        rows[f"{backbone}, ours - paper"] = {cell.label: _beside(cell)[1] for cell in cells}
    return [[label, *(row.get(name, "") for name in names)] for label, row in rows.items()]


def markdown(report: BenchmarkReport) -> str:
    """Table 1's layout, then what the comparisons show."""
    names = _columns(report)
    lines = [
        "# Results",
        "",
        "Subject-level accuracy in percent, mean ± standard deviation over seeds, and its 95 % interval. **Best**, "
        "<ins>second</ins>.",
    ]
    for (cohort, budget), blocks in _blocks(report).items():
        lines += ["", f"## {cohort}, budget {budget}", "", f"| backbone | {' | '.join(names)} |"]
        lines.append("|---" * (len(names) + 1) + "|")
        for backbone, cells in blocks:
            rows = _rows(backbone, cells, names, lambda text: f"**{text}**", lambda text: f"<ins>{text}</ins>")
            lines += [f"| {' | '.join(row)} |" for row in rows]
        every = [cell for _, cells in blocks for cell in cells]
        for line in [*_facts(every[0]), *caveats(every)]:
            lines += ["", line]
        lines += ["", *(f"- {line}" for line in _recipes(every))]
        for backbone, _ in blocks:
            found = report.comparisons.get((cohort, backbone, budget), [])
            lines += ["", f"{backbone}:", "", *(f"- {one.sentence}" for one in found)] if found else []
    if report.remarks:
        lines += ["", "## Not in the table", "", *(f"- {line}" for line in report.remarks)]
    return "\n".join(lines) + "\n"


def latex(report: BenchmarkReport) -> str:
    """Table 1's layout, for a paper with booktabs."""
    names = _columns(report)
    width = len(names) + 1
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'c' * len(names)}}}",
        r"\toprule",
        rf"backbone & {' & '.join(map(_tex, names))} \\",
    ]
    for (cohort, budget), blocks in _blocks(report).items():
        title = _tex(f"{cohort}, budget {budget}")
        lines += [r"\midrule", rf"\multicolumn{{{width}}}{{c}}{{{title}}} \\", r"\midrule"]
        for backbone, cells in blocks:
            rows = _rows(
                backbone, cells, names, lambda text: rf"\textbf{{{text}}}", lambda text: rf"\underline{{{text}}}"
            )
            lines += [rf"{' & '.join([_tex(row[0]), *map(_number, row[1:])])} \\" for row in rows]
        every = [cell for _, cells in blocks for cell in cells]
        for line in [*_recipes(every), *_facts(every[0]), *caveats(every)]:
            lines.append(rf"\multicolumn{{{width}}}{{p{{.9\linewidth}}}}{{\footnotesize {_tex(line)}}} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _tex(text: str) -> str:
    """Plain words in LaTeX."""
    return re.sub(r"[_%#&${}]", r"\\\g<0>", text).replace("±", r"$\pm$")


def _number(text: str) -> str:
    return re.sub(r"^[+-][\d.]+", r"$\g<0>$", text).replace("±", r"$\pm$").replace(" - ", "--")  # a sign, not a hyphen
