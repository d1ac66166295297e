"""One colour and one marker for each method, wherever it is drawn; and colours for classes.

The hues follow Okabe and Ito's colour-blind safe palette, shifted so that each stands out from a light and a dark page.
There are more methods than hues that everybody can tell apart: so markers differ too, and names stand beside them.
"""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """How a method is drawn."""

    colour: str  # hex
    marker: str  # circle, square, diamond, triangle


_METHODS = {
    "bandpower": Style("#7d8287", "square"),
    "tangent": Style("#009e73", "square"),
    "majority_vote": Style("#b98200", "triangle"),
    "additive": Style("#c56a9c", "circle"),
    "attention": Style("#2f8fc4", "circle"),
    "millet": Style("#8c6bb1", "diamond"),
    "timemil": Style("#a0603a", "diamond"),
    "supcon": Style("#c2478b", "triangle"),
    "masked": Style("#6f8f23", "triangle"),
    "bridgemil": Style("#d55e00", "circle"),
}
_OTHERS = ("#5b7fa6", "#a6785b", "#5ba68c", "#a65b8f", "#8fa65b")  # ablations, ensembles, the user's own
_CLASSES = ("#0f7ab8", "#c98a00", "#0a9b74", "#c2478b", "#7d6bb8", "#8a6d5a")


def method(name: str) -> Style:
    """The style of a method; ablations, ensembles and further methods get one by their name.

    Parameters
    ----------
    name
        A method, an ablation, or several joined by ``+``.
    """
    plain = name.partition(" (")[0]
    return _METHODS.get(plain) or Style(_OTHERS[sum(plain.encode()) % len(_OTHERS)], "diamond")


def class_colour(number: int) -> str:
    """The colour of a class by its number."""
    return _CLASSES[number % len(_CLASSES)]
