"""The results of one or several methods, for a terminal: a table, the confusion matrices, and what they do not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bridgemil.engine.forecast import duration
from bridgemil.evaluation.results import GROUPED, TOGETHER
from bridgemil.evaluation.statistics import COMPARED, SCORE_INTERVALS, corrected
from bridgemil.methods import changed_from_budget
from bridgemil.report.benchmark_text import print_sheet, print_warnings
from bridgemil.report.clinical_sheets import clinical_sheets
from bridgemil.runs import merged

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from bridgemil.evaluation.metrics import EvidenceFound
    from bridgemil.evaluation.results import Results


def print_results(results: Sequence[Results], baselines: Sequence[Results] = ()) -> None:
    """Print results of one cohort and split; ``baselines`` are the simple baselines on the same subjects."""
    from rich.console import Console

    console = Console(highlight=False)
    print_warnings(merged(*(result.warnings for result in results)))
    rows: list[Results] = []
    for result in results:
        rows += [result, *([result.ensemble] if result.seeds > 1 and not result.steady else [])]
    console.print(_table([*rows, *baselines]))
    for result in [*results, *baselines]:
        console.print(f"  {recipe(result)}", markup=False)
        if result.bands_left_out:
            console.print(f"  {result.bands_sentence}", markup=False)
    facts = results[0].summary.iloc[0]
    console.print(
        f"Chance level (largest class): {facts['chance']:.1%}; 95 % chance interval for n = {facts['n_subjects']}: "
        f"{facts['chance95_low']:.1%} to {facts['chance95_high']:.1%}.",
    )
    console.print(SCORE_INTERVALS)
    if results[0].split.get("kind") == "groups":
        console.print(GROUPED)
    if baselines:
        console.print(COMPARED)
    for result in results:
        for comparison in corrected([result.compare(baseline) for baseline in baselines]):
            console.print(comparison.corrected_sentence, markup=False)
    for sheet in clinical_sheets([(_label(row), row) for row in [*rows, *baselines]]):
        print_sheet(console, sheet)
    for result in results:
        _print_confusion(console, result)


def _label(result: Results) -> str:
    return "  seeds averaged" if result.predictions["seed"].iloc[0] == TOGETHER else result.name


def _table(results: Sequence[Results]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")  # in a narrow terminal a name is broken, never a number
    for name in ("accuracy", "95 %", "fold\nmean", "bal.\nacc.", "F1", "AUROC", "MCC"):
        table.add_column(name, no_wrap=True, justify="right")
    for result in results:
        row = result.summary.iloc[0]
        spread = f" ± {100 * row['accuracy_std']:.1f}" if row["seeds"] > 1 else ""
        table.add_row(
            escape(_label(result)),
            f"{100 * row['accuracy']:.1f}{spread}",
            f"{100 * row['ci95_low']:.1f} - {100 * row['ci95_high']:.1f}",
            f"{100 * row['fold_mean']:.1f}",
            *(f"{row[name]:.3f}" for name in ("balanced_accuracy", "macro_f1", "auroc", "mcc")),
        )
    first = results[0].summary.iloc[0]
    seeds = "1 seed" if first["seeds"] == 1 else f"{first['seeds']} seeds"
    split = results[0].split.get("title", f"{first['folds']} folds")
    table.title = escape(f"{first['n_subjects']} subjects, each held out once: {split}, {seeds}")
    return table


def recipe(result: Results) -> str:
    """What was run: backbone, recipe, budget, sub-bag pairs, and how long it took."""
    row = result.summary.iloc[0]
    changed = ", ".join(f"{key}={value}" for key, value in changed_from_budget(result.settings).items())
    parts = [] if row["budget"] is None else [row["backbone"], f"recipe {row['recipe']}", f"budget {row['budget']}"]
    parts += [f"changed: {changed}"] if changed else []
    parts += [f"subbag_pairs {row['subbag_pairs']:.0f}"] if row["subbag_pairs"] is not None else []
    return f"{result.name}: {', '.join(parts)}{'; ' if parts else ''}computed in {duration(row['seconds'])}"


def _print_confusion(console: Console, result: Results) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        "true \\ predicted",
        *map(escape, result.classes),
        title=escape(f"{result.name}: confusion matrix of subjects"),
        title_justify="left",
    )
    for name, row in result.confusion.iterrows():
        table.add_row(escape(str(name)), *(f"{value:g}" if value == int(value) else f"{value:.1f}" for value in row))
    console.print(table)


def print_evidence(found: Mapping[str, EvidenceFound]) -> None:
    """Say how well the gates of each method rank true evidence, where the truth is known."""
    from rich.console import Console

    console = Console(highlight=False)
    if found:
        console.print(
            "\n[bold]Do the gates find the true evidence?[/bold] AUROC within held-out patients; 0.5 is chance."
        )
    for name, evidence in found.items():
        span = f"95 % {evidence.low:.3f} to {evidence.high:.3f}, {len(evidence.subjects)} patients"
        console.print(f"  {name}: {evidence.mean:.3f} ({span})")
