"""``bridgemil datasets``: cards of public data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bridgemil.datasets import DatasetCard


def run(name: Annotated[str | None, typer.Argument(help="Show one card in full.", metavar="NAME")] = None) -> Any:
    """List public EEG data sets with one label per subject: size, licence, how to get and prepare them, known defects.

    Example: `bridgemil datasets`

    Example: `bridgemil datasets mumtaz2017`

    A value that could not be verified is shown as unknown.
    """
    from bridgemil import datasets

    cards = [datasets.card(name)] if name is not None else [datasets.card(known) for known in datasets.names()]
    if name is None:
        _table(cards)
    else:
        _card(cards[0])
    content = [card.model_dump(mode="json") for card in cards]
    return content if name is None else content[0]


def _table(cards: list[DatasetCard]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "condition", "subjects", "electrodes", "rate", "download", "defects", box=SIMPLE)
    table.columns[0].no_wrap = True
    for card in cards:
        facts = [card.rows()[key] for key in ("Subjects", "Electrodes", "Rate")]
        table.add_row(card.name, card.condition, *facts, "yes" if card.host else "login", str(len(card.defects)))
    Console().print(table)
    typer.echo("Next: bridgemil datasets NAME")


def _card(card: DatasetCard) -> None:
    typer.echo(f"{card.title}\n")
    for heading, text in card.rows().items():
        typer.echo(f"  {heading:<11} {text}")
    if card.access:
        typer.echo(f"  {'Access':<11} {card.access}")
    if card.defects:
        typer.echo("\n  - ".join(["\nKnown defects", *card.defects]))
    if card.note:
        typer.echo(f"\nNote: {card.note}")
    typer.echo()
    for command in card.commands():
        typer.echo(f"Next: {command}")
