"""The results of one or several methods, for a terminal: a table, the confusion matrices, and what they do not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bridgemil.evaluation.metrics import difference
from bridgemil.evaluation.progress import duration
from bridgemil.methods import changed_from_budget

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from bridgemil.evaluation.evidence import EvidenceFound
    from bridgemil.evaluation.results import Results


def print_results(results: Sequence[Results], floor: Results | None = None) -> None:
    """Print results of one cohort and split; ``floor`` is band power on the same subjects."""
    from rich.console import Console

    console = Console(highlight=False)
    every = [*results, *([floor] if floor is not None else [])]
    console.print(_table(every))
    for one in every:
        console.print(f"  {recipe(one)}", soft_wrap=True, markup=False)
    facts = every[0].summary.iloc[0]
    console.print(
        f"Always guessing the largest class: {facts['chance']:.1%} (a guesser on {facts['n_subjects']} subjects: "
        f"{facts['chance95_low']:.1%} to {facts['chance95_high']:.1%}).",
        soft_wrap=True,
    )
    console.print(
        "Intervals: 95 %, bootstrap over subjects; what training anew would change is not in them.", soft_wrap=True
    )
    if floor is not None:
        for one in results:
            console.print(against_floor(one, floor), soft_wrap=True)
    for one in results:
        _print_confusion(console, one)


def against_floor(one: Results, floor: Results) -> str:
    """One sentence: does the method reach band power?"""
    gain, low, high = difference(one.predictions, floor.predictions)
    name, span = one.settings.method, f"{100 * gain:+.1f} points, 95 % {100 * low:+.1f} to {100 * high:+.1f}"
    if low > 0:
        return f"{name} is better than band power on these subjects ({span})."
    if high < 0:
        return f"{name} does NOT reach band power: it is worse on these subjects ({span})."
    if gain < 0:
        return f"{name} does NOT reach band power ({span}; the difference may be chance)."
    return f"{name} is not shown to be better than band power ({span})."


def _table(results: Sequence[Results]) -> Table:
    from rich.table import Table

    table = Table(title_justify="left", title_style="bold")
    for name in ("method", "accuracy", "95 %", "balanced", "F1", "AUROC", "MCC"):
        table.add_column(name, no_wrap=True, justify="left" if name == "method" else "right")
    for one in results:
        row = one.summary.iloc[0]
        spread = f" ± {100 * row['accuracy_std']:.1f}" if row["seeds"] > 1 else ""
        table.add_row(
            row["method"],
            f"{100 * row['accuracy']:.1f}{spread}",
            f"{100 * row['ci95_low']:.1f} - {100 * row['ci95_high']:.1f}",
            *(f"{row[name]:.3f}" for name in ("balanced_accuracy", "macro_f1", "auroc", "mcc")),
        )
    first = results[0].summary.iloc[0]
    seeds = "1 seed" if first["seeds"] == 1 else f"{first['seeds']} seeds"
    table.title = f"{first['n_subjects']} subjects, each held out once: {first['folds']} folds, {seeds}"
    return table


def recipe(one: Results) -> str:
    """What was run: backbone, budget, sub-bag pairs, and how long it took."""
    row = one.summary.iloc[0]
    took = f"computed in {duration(row['seconds'])}"
    if one.settings.stage2.kind == "bandpower":
        return f"{row['method']}: {took}"
    pairs = f", subbag_pairs {row['subbag_pairs']:.0f}" if row["subbag_pairs"] is not None else ""
    changed = ", ".join(f"{key}={value}" for key, value in changed_from_budget(one.settings).items())
    budget = f"budget {row['budget']}{f', changed: {changed}' if changed else ''}"
    return f"{row['method']}: {row['backbone']}, {budget}{pairs}; {took}"


def _print_confusion(console: Console, one: Results) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        "true \\ said", *map(escape, one.classes), title=f"{one.settings.method}: subjects", title_justify="left"
    )
    for name, row in one.confusion.iterrows():
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
    for name, one in found.items():
        span = f"95 % {one.low:.3f} to {one.high:.3f}, {len(one.subjects)} patients"
        console.print(f"  {name}: {one.mean:.3f} ({span})", soft_wrap=True)
