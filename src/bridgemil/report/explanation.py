"""Explanation of a prediction: which windows, electrodes and bands it depends on, and whether that can be determined.

``explain`` takes fitted models and one subject's windows. Attention weights and contributions are reported with their
spread and a removal test: does the prediction change more without the highest tenth of windows than without a random
tenth? ``Ranking.singles_out`` is the result; ``predict`` uses it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData, BadUse, one_of
from bridgemil.evaluation.clinical import positive_class
from bridgemil.models import BaselineModel, LazyBag, Model
from bridgemil.report.scalp import electrode_table, pair_table, plot_maps
from bridgemil.report.templating import macro
from bridgemil.report.window_values import Floats, Index, WindowValues, against_others, leaves, linear, mean, read
from bridgemil.storage.files import write_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

TEXTS = "explain.txt.j2"
DRAWS = 20  # random tenths that the highest tenth is compared with
PLURALS = {"gate": "Attention weights", "contribution": "Contributions", "probability": "Window probabilities"}
FLAT = 0.1  # attention weights are nearly equal if 90 % of them span less than this share of their mean
LISTED = 5  # highest windows
ATTENTION = (
    "An attention weight (a sigmoid gate, not a softmax) is how strongly a window enters the prediction, not which "
    "class it supports; a contribution shows that."
)
NO_MAPS = "The model's features do not correspond to single electrodes and bands: there are no scalp maps."
SOME_MAPS = "Scalp maps show some of the member models: the others have other features."
Calibrate = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Person:
    """The windows of one subject and the recordings they come from.

    Parameters
    ----------
    name : str
        Subject id, or the name of a file.
    bag : ndarray of shape (n_windows, C, n_times)
        In microvolts.
    starts : ndarray of shape (n_windows,)
        Start of each window in seconds from the start of its recording.
    recordings : sequence of (str, int)
        Name and number of windows of each recording, in order; by default one.
    label : str, optional
        The diagnosis, if it is known.
    """

    name: str
    bag: NDArray[np.float32]
    starts: NDArray[np.float64]
    recordings: Sequence[tuple[str, int]] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        n = len(self.bag)
        if not self.recordings:
            object.__setattr__(self, "recordings", [(self.name, n)])
        if not n == len(self.starts) == len(self.names):
            here = f"{len(self.starts)} times of them, and its recordings have {len(self.names)}"
            raise BadData(f"{self.name}: {n} windows, but {here}")

    @property
    def names(self) -> list[str]:
        """Name of the recording of each window."""
        return [name for name, n in self.recordings for _ in range(n)]


@dataclass(frozen=True)
class Removal:
    """Removal test: change of the predicted class's probability without the tenth of windows that is ranked highest."""

    class_name: str  # predicted
    n: int  # windows removed
    top: float  # change without the highest tenth
    random: Floats  # changes without random tenths, one per draw

    @property
    def more_than_chance(self) -> bool:
        """Whether the highest tenth changes the prediction more than every random tenth."""
        return bool(abs(self.top) > np.abs(self.random).max())


@dataclass(frozen=True)
class Ranking:
    """One number per window, by which windows can be ranked: its spread, and the removal test."""

    name: str  # of the ranked column
    values: Floats  # n
    removal: Removal | None  # None for one window

    @property
    def spread(self) -> dict[str, float]:
        """Mean, standard deviation, and the 5th and 95th percentile."""
        low, high = np.percentile(self.values, [5, 95])
        return {"mean": float(self.values.mean()), "sd": float(self.values.std()), "p5": float(low), "p95": float(high)}

    @property
    def is_flat(self) -> bool:
        """Whether attention weights are nearly equal; of other quantities, never."""
        return self.name == "gate" and self.spread["p95"] - self.spread["p5"] < FLAT * abs(self.spread["mean"])

    @property
    def singles_out(self) -> bool:
        """Whether the highest windows may be listed: the values differ, and the prediction depends on these windows.

        ``predict``, ``explain`` and the pages all use this, so that they never disagree.
        """
        return not self.is_flat and self.removal is not None and self.removal.more_than_chance

    @property
    def order(self) -> Index:
        """Windows, from the highest value to the lowest."""
        return np.argsort(-self.values, kind="stable")

    @property
    def sentences(self) -> list[str]:
        """Spread and verdict."""
        digits = 5 if self.name == "contribution" else 3
        return [macro(TEXTS, "spread")(PLURALS[self.name], self.spread, digits), self.verdict]

    @property
    def verdict(self) -> str:
        """``singles_out`` as a sentence, with its reason."""
        return macro(TEXTS, "verdict")(PLURALS[self.name], self, FLAT)

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        removal = self.removal
        test = None if removal is None else {
            "windows": removal.n, "top_tenth": removal.top, "random_tenth": float(removal.random.mean()),
            "random_range": [float(removal.random.min()), float(removal.random.max())],
            "more_than_chance": removal.more_than_chance,
        }  # fmt: skip
        return self.spread | {"flat": self.is_flat, "singles_out": self.singles_out, "removal": test}


@dataclass(frozen=True)
class Explanation:
    """What a prediction depends on; K classes."""

    person: Person
    classes: Sequence[str]
    probabilities: Floats  # of the model, (K,), not calibrated
    predicted: int  # class; of a window classifier the one with most votes
    # One row per window: window, recording, second, ``gate``, contribution_<class>, p_<class>; ``contribution`` is that
    # to the predicted class minus the mean of the others'.
    windows: pd.DataFrame
    rankings: list[Ranking]  # by attention weight, contribution or probability, where the model has them
    pairs: pd.DataFrame  # from ``scalp.pair_table`` and ``scalp.electrode_table``; empty where features have no names
    electrodes: pd.DataFrame
    notes: list[str] = field(default_factory=list)  # what a reader must know

    def write_csv(self, folder: Path) -> list[Path]:
        """Write windows.csv, pairs.csv and electrodes.csv, those that are not empty; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        tables = {"windows": self.windows, "pairs": self.pairs, "electrodes": self.electrodes}
        written = [folder / f"{name}.csv" for name, table in tables.items() if len(table)]
        for file in written:
            write_text(file, tables[file.stem].to_csv(index=False))
        return written

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "subject": self.person.name,
            "label": self.person.label,
            "predicted": self.classes[self.predicted],
            "probabilities": dict(zip(self.classes, map(float, self.probabilities), strict=True)),
            "windows_used": len(self.person.bag),
            "windows": {ranking.name: ranking.to_dict() for ranking in self.rankings},
            "top_windows": {ranking.name: top_windows(self.person, ranking) for ranking in self.rankings},
            "notes": self.notes,
        }


def top_windows(person: Person, ranking: Ranking) -> list[dict[str, Any]]:
    """The windows with the highest values: window, recording, second, value; empty unless they are singled out."""
    names, chosen = person.names, ranking.order[: LISTED if ranking.singles_out else 0]
    return [
        {"window": int(i), "recording": names[i], "second": float(person.starts[i]), "value": float(ranking.values[i])}
        for i in chosen
    ]


def explain(
    models: Model | Sequence[Model],
    person: Person,
    background: Floats | None = None,
    background_of: str = "",
    predicted: int | None = None,
    calibrate: Calibrate | None = None,
) -> Explanation:
    """Explain a prediction.

    Parameters
    ----------
    models : Model or sequence of Model
        A fitted model, or several whose probabilities, attention weights, contributions and patterns are averaged. An
        ensemble is replaced by its members; attention weights are those of the members that have them.
    person : Person
        The subject's windows.
    background : ndarray of shape (m, F), optional
        Features of training subjects (or of their windows) over which patterns are computed; by default those of this
        subject's windows, and the notes say so.
    background_of : str
        Description of the background.
    predicted : int, optional
        The predicted class, if it is not the model's most probable one (calibration may change it).
    calibrate : callable, optional
        Maps probabilities (K,) to those that are shown; the removal test uses the latter.

    Returns
    -------
    Explanation
    """
    members, each, values = _read(models, person.bag)
    classes = members[0].facts.classes
    p = values.probabilities(np.arange(len(person.bag)))
    most_probable = int(p.argmax()) if len(each) > 1 else values.predicted(p)
    predicted = most_probable if predicted is None else predicted
    rankings = _rankings(values, classes[predicted], predicted, calibrate)
    pairs, electrodes, notes = _patterns(each, classes, background, background_of)
    if not rankings:
        notes.insert(0, f"{members[0].facts.settings.method} has no values of single windows: there is no timeline.")
    elif values.gates is not None and values.contributions is not None:
        notes.insert(0, ATTENTION)
    if values.gates is not None and any(one.gates is None for one in each):
        notes.append("Attention weights are those of the member models that have them.")
    if predicted == most_probable != int(p.argmax()):
        notes.append("Most windows vote for another class than the one with the highest mean probability.")
    windows = _window_table(person, classes, values, rankings)
    return Explanation(person, classes, p, predicted, windows, rankings, pairs, electrodes, notes)


def rank_windows(
    models: Model | Sequence[Model], bag: NDArray[np.float32], predicted: int, calibrate: Calibrate | None = None
) -> list[Ranking]:
    """The rankings of ``explain`` alone."""
    members, _, values = _read(models, bag)
    return _rankings(values, members[0].facts.classes[predicted], predicted, calibrate)


def _read(
    models: Model | Sequence[Model], bag: NDArray[np.float32]
) -> tuple[list[Model], list[WindowValues], WindowValues]:
    """Member models, their values of the windows, and the mean of these; they share the front end's features."""
    members = [leaf for model in ([models] if isinstance(models, Model) else models) for leaf in leaves(model)]
    windows = LazyBag.of(bag)
    each = [read(model, windows) for model in members]
    return members, each, mean(each, [member.facts.settings.weight for member in members])


def _rankings(values: WindowValues, class_name: str, predicted: int, calibrate: Calibrate | None) -> list[Ranking]:
    contributions, p = values.contributions, values.window_probabilities
    ranked = {
        "gate": values.gates,
        "contribution": None if contributions is None else against_others(contributions)[:, predicted],
        "probability": None if p is None else p[:, predicted],
    }
    return [
        Ranking(name, own, removal_test(values, own, class_name, predicted, calibrate))
        for name, own in ranked.items()
        if own is not None
    ]


def removal_test(
    values: WindowValues, ranked: Floats, class_name: str, predicted: int, calibrate: Calibrate | None = None
) -> Removal | None:
    """Change of the prediction without the highest tenth of windows and without random tenths; None for one window.

    ``ranked`` (n_windows,) are the values by which windows are ranked.
    """
    n = len(ranked)
    if n < 2:
        return None
    size, windows, rng = max(1, round(n / 10)), np.arange(n), np.random.default_rng(0)

    def without(removed: Index) -> float:
        p = values.probabilities(np.setdiff1d(windows, removed))
        return float((p if calibrate is None else calibrate(p))[predicted])

    whole = without(windows[:0])
    random = np.array([without(rng.choice(n, size, replace=False)) - whole for _ in range(DRAWS)])
    return Removal(class_name, size, without(np.argsort(-ranked, kind="stable")[:size]) - whole, random)


def plot_patterns(
    model: Model,
    bags: Sequence[NDArray[np.float32]] | None,
    background: Floats | None,
    class_name: str | None,
    quantity: str | None,
    axes: Sequence[Axes] | None,
) -> list[Axes]:
    """Draw scalp maps of a model's patterns, computed as for the page of a subject, one map per band.

    Weights of networks are evaluated at the windows of ``bags``; without any, patterns are of the linear members alone.
    Patterns are over ``background`` (m, F), by default over these windows. The class is the patient class by default.
    """
    members, classes = leaves(model), model.facts.classes
    if bags is None:
        each = [linear(member) for member in members if isinstance(member, BaselineModel)]
    else:
        windows = LazyBag.of(np.concatenate(bags))
        each = [read(member, windows) for member in members]
    _, electrodes, notes = _patterns(each, classes, background, "")
    if electrodes.empty and bags is None and len(each) < len(members):
        raise BadUse("plot_patterns: the weights of a network depend on the windows; give the bags of some subjects")
    if electrodes.empty:
        raise BadUse(f"plot_patterns: {notes[0]}")
    if class_name is None:
        class_name = positive_class(classes)[0] if len(classes) == 2 else classes[-1]
    one_of("class", class_name, classes)
    return plot_maps(electrodes, class_name, quantity, axes)


def _patterns(
    each: Sequence[WindowValues], classes: Sequence[str], background: Floats | None, background_of: str
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Tables of pairs and electrodes, mean over models of the same features, and notes on them.

    Where models have different features, those of the background are shown.
    """
    import pandas as pd

    named = [(values, parts) for values in each if (parts := values.weights())]
    width = 0 if background is None else background.shape[1]
    if named and all(len(values.names) != width for values, _ in named):
        background, width = None, len(named[0][0].names)
        background_of = "the subject's own windows (those of training subjects are not available)"
    tables = []
    for values, parts in named:
        rows = values.features if background is None else background
        if len(values.names) == width and rows is not None:
            tables.append(pair_table(values.names, parts, rows.astype(np.float64), classes))
    if not tables:
        return pd.DataFrame(), pd.DataFrame(), [NO_MAPS]
    notes = [] if len(tables) == len(named) else [SOME_MAPS]
    pairs = tables[0]
    for name in ("weight", "pattern"):
        pairs[name] = np.mean([table[name] for table in tables], axis=0)
    return pairs, electrode_table(pairs), [*notes, f"Patterns after Haufe et al. (2014), over {background_of}."]


def _window_table(
    person: Person, classes: Sequence[str], values: WindowValues, rankings: Sequence[Ranking]
) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {"window": range(len(person.bag)), "recording": person.names, "second": person.starts}
    columns |= {ranking.name: ranking.values for ranking in rankings if ranking.name != "probability"}
    for prefix, table in (("contribution", values.contributions), ("p", values.window_probabilities)):
        if table is not None:
            columns |= {f"{prefix}_{name}": table[:, k] for k, name in enumerate(classes)}
    return pd.DataFrame(columns)
