"""A benchmark report for the terminal, and as Markdown, CSV and LaTeX files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bridgemil.report.benchmark_table import ORDER, BenchmarkReport, Cell

Mark = Callable[[str], str]


def ranked(cells: Sequence[Cell], best: Mark, second: Mark) -> dict[str, str]:
    """``mean ± std`` of each method, the best and the second best marked; ties share a mark."""
    values = sorted({round(cell.mean, 2) for cell in cells}, reverse=True)
    found = {}
    for cell in cells:
        spread = f" ± {cell.std:.2f}" if cell.seeds > 1 else ""
        text, value = f"{cell.mean:.2f}{spread}", round(cell.mean, 2)
        if len(values) > 1 and value == values[0]:
            text = best(text)
        elif len(values) > 2 and value == values[1]:
            text = second(text)
        found[cell.method] = text
    return found


def print_report(report: BenchmarkReport) -> None:
    """The report for a person."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for (cohort, backbone, budget), cells in report.groups().items():
        table = Table(title=f"{cohort}, {backbone}, budget {budget}", title_justify="left", title_style="bold")
        for name in ("method", "accuracy", "95 % (subjects)", "seeds", "paper", "ours - paper"):
            table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
        marked = ranked(cells, lambda text: f"[bold]{text}[/bold]", lambda text: f"[underline]{text}[/underline]")
        for cell in cells:
            published = cell.published
            theirs = "" if published is None else f"{published[0]:.2f} ± {published[1]:.2f}"
            gap = "" if published is None else f"{cell.mean - published[0]:+.2f}"
            span = f"{cell.low:.1f} - {cell.high:.1f}"
            table.add_row(cell.method, marked[cell.method], span, str(cell.seeds), theirs, gap)
        console.print(table)
        for line in caveats(cells):
            console.print(line, soft_wrap=True)
        for one in report.comparisons.get((cohort, backbone, budget), []):
            console.print(f"  {one.sentence}", soft_wrap=True)
    for line in report.unfinished:
        console.print(f"Not finished: {line}", markup=False, soft_wrap=True)


def caveats(cells: Sequence[Cell]) -> list[str]:
    """Where the paper's numbers stand beside ours: what is not as in the paper."""
    if not any(cell.published for cell in cells):
        return []
    found = sorted({caveat for cell in cells for caveat in cell.caveats if cell.published})
    if not found:
        return [
            "The paper's numbers are of the same cohort, budget, seeds and number of folds; its split is not known."
        ]
    return [f"NOT the paper's setting ({'; '.join(found)}): the difference is not a failed or better repetition."]


def write_files(report: BenchmarkReport, folder: Path) -> list[Path]:
    """table.csv, comparisons.csv, report.md and table.tex."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    report.table.to_csv(folder / "table.csv", index=False)
    rows = [
        {"cohort": key[0], "backbone": key[1], "budget": key[2], "one": c.one, "other": c.other, "gain": c.gain,
         "ci95_low": c.low, "ci95_high": c.high, "p": c.p, "p_holm": c.p_holm}
        for key, comparisons in report.comparisons.items() for c in comparisons
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(folder / "comparisons.csv", index=False)
    (folder / "report.md").write_text(markdown(report), encoding="utf-8")
    (folder / "table.tex").write_text(latex(report), encoding="utf-8")
    return [folder / name for name in ("table.csv", "comparisons.csv", "report.md", "table.tex")]


def _methods(report: BenchmarkReport) -> list[str]:
    present = {cell.method for cell in report.cells}
    return [name for name in ORDER if name in present]


def markdown(report: BenchmarkReport) -> str:
    """Table 1's layout, then what the comparisons show."""
    names = _methods(report)
    lines = [
        "# Results",
        "",
        "Subject-level accuracy in percent: mean ± standard deviation over seeds. **Best**, *second*.",
    ]
    by_cohort: dict[tuple[str, str], list[tuple[str, list[Cell]]]] = {}
    for (cohort, backbone, budget), cells in report.groups().items():
        by_cohort.setdefault((cohort, budget), []).append((backbone, cells))
    for (cohort, budget), rows in by_cohort.items():
        lines += ["", f"## {cohort}, budget {budget}", "", f"| backbone | {' | '.join(names)} |"]
        lines.append("|---" * (len(names) + 1) + "|")
        for backbone, cells in rows:
            marked = ranked(cells, lambda text: f"**{text}**", lambda text: f"*{text}*")
            lines.append(f"| {backbone} | {' | '.join(marked.get(name, '') for name in names)} |")
            published = {cell.method: cell.published for cell in cells if cell.published}
            if published:
                theirs = [f"{published[n][0]:.2f} ± {published[n][1]:.2f}" if n in published else "" for n in names]
                gaps = {cell.method: f"{cell.mean - cell.published[0]:+.2f}" for cell in cells if cell.published}
                lines.append(f"| {backbone}, paper | {' | '.join(theirs)} |")
                lines.append(f"| {backbone}, ours - paper | {' | '.join(gaps.get(name, '') for name in names)} |")
        lines += ["", *caveats([cell for _, cells in rows for cell in cells])]
        for backbone, _ in rows:
            found = report.comparisons.get((cohort, backbone, budget), [])
            lines += ["", f"{backbone}:", "", *(f"- {one.sentence}" for one in found)] if found else []
    if report.unfinished:
        lines += ["", "## Not finished", "", *(f"- {line}" for line in report.unfinished)]
    return "\n".join(lines) + "\n"


def latex(report: BenchmarkReport) -> str:
    """Table 1's layout, for a paper with booktabs."""
    names = _methods(report)
    heads = " & ".join(name.replace("_", r"\_") for name in names)
    lines = [rf"\begin{{tabular}}{{l{'c' * len(names)}}}", r"\toprule", rf"backbone & {heads} \\"]
    seen = None
    for (cohort, backbone, budget), cells in report.groups().items():
        if seen != (cohort, budget):
            seen = (cohort, budget)
            words = f"{cohort}, budget {budget}".replace("_", r"\_")
            lines += [r"\midrule", rf"\multicolumn{{{len(names) + 1}}}{{c}}{{{words}}} \\", r"\midrule"]
        marked = ranked(cells, lambda text: rf"\textbf{{{text}}}", lambda text: rf"\underline{{{text}}}")
        row = " & ".join(marked.get(name, "").replace("±", r"$\pm$") for name in names)
        lines.append(rf"{backbone} & {row} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
