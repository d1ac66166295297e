"""Options that several verbs share, and reading of comma-separated values."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from bridgemil import backbones, methods

METHOD, BACKBONE, BUDGET = methods.METHOD, methods.BACKBONE, methods.BUDGET
ALL_METHODS = ",".join(methods.order(ablations=False))
METHODS = (
    f"{', '.join(f'{name} ({methods.entry(name).description})' for name in methods.names())}; an ablation "
    f"({', '.join(methods.ablations())}); or several joined by +, an ensemble."
)
BACKBONES = (
    f"{backbones.BACKBONES.describe()}, braindecode:MODEL, spd_learn:MODEL; or your own, "
    "path/to/file.py:NAME or package.module:NAME."
)
RECIPES = "paper (its optimiser settings, unchanged) or ours.  [default: ours; with budget paper, paper]"
MOST_CHARACTERS = 10_000  # of one value of --set
AcceptRisk = Annotated[
    list[str] | None,
    typer.Option(help="Go on though the quick audit FAILs on this; written into every result.", metavar="NAME"),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, help="Runs at a time.  [default: as many as idle cores and memory allow]", rich_help_panel="Running"
    ),
]
Threads = Annotated[int, typer.Option(min=1, help="Threads of each run.", rich_help_panel="Running")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Positive = Annotated[
    str | None,
    typer.Option(
        help="The patient class of two.  [default: the one not called control, healthy, HC, …]", metavar="CLASS",
        rich_help_panel="Clinical metrics",
    ),
]  # fmt: skip
OperatingPoint = Annotated[
    str | None,
    typer.Option(
        help="argmax, youden, sensitivity=.9 or specificity=.9; the threshold of a fold is chosen on the other folds.  "
        "[default: argmax]",
        rich_help_panel="Clinical metrics",
    ),
]
Prevalence = Annotated[
    float | None,
    typer.Option(help="Share of patients among those tested, for PPV and NPV.", rich_help_panel="Clinical metrics"),
]


def names(text: str | None) -> tuple[str, ...] | None:
    """``A,B`` as a tuple; None if the option was not given."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def mapping(text: str | None) -> dict[str, str] | None:
    """``A=AD,C=HC`` as a dict; a name without ``=`` stands for itself."""
    if text is None:
        return None
    pairs = [part.partition("=") for part in names(text) or ()]
    return {old.strip(): (new if equals else old).strip() for old, equals, new in pairs}


def edge(text: str | None) -> float | str | None:
    """A filter edge in Hz; ``none`` switches the filter off."""
    if text is None:
        return None
    if text.strip().lower() == "none":
        return "none"
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number in Hz or 'none', got {text!r}") from None


def print_json(content: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))


def settings(pairs: list[str]) -> dict[str, Any]:
    """``--set stage1.epochs=5`` as a dict; values are read as YAML (numbers, true, null, words)."""
    import yaml

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"expected key=value, got {pair!r}", param_hint="--set")
        if len(value) > MOST_CHARACTERS:
            raise typer.BadParameter(f"the value of {key} has {len(value):,} characters", param_hint="--set")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError):  # a date that cannot be, a number of thousands of digits
            raise typer.BadParameter(f"cannot read the value of {pair!r}", param_hint="--set") from None
        if isinstance(found[key.strip()], str) and _is_number(value):  # YAML 1.1 takes 1e-5 for a word
            found[key.strip()] = float(value)
    return found


def values(pairs: list[str]) -> dict[str, list[Any]]:
    """``--vary stage2.retention=0,1e-5`` as a dict of lists."""
    found: dict[str, list[Any]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip() or not all(value.strip() for value in text.split(",")):
            raise typer.BadParameter(f"expected key=value,value; got {pair!r}", param_hint="--vary")
        if key.strip() in found:
            raise typer.BadParameter(f"{key.strip()} is named twice; join its values by commas", param_hint="--vary")
        found[key.strip()] = [settings([f"{key}={value}"])[key.strip()] for value in text.split(",")]
    return found


def numbers(text: str | None, option: str) -> list[int] | None:
    """``20,50`` as whole numbers above zero; None if the option was not given."""
    if text is None:
        return None
    try:
        found = [int(part) for part in names(text) or ()]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise typer.BadParameter(f"expected whole numbers above zero, comma-separated; got {text!r}", param_hint=option)
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
