"""Explanation of a prediction: which windows, electrodes and bands it depends on, and whether that can be said at all.

``explain`` takes fitted models and one subject's windows. Attention weights and contributions are reported with their
spread and a removal test: does the prediction change more without the highest tenth of windows than without a random
tenth? ``Ranking.singles_out`` is the one verdict; ``predict`` uses it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData
from bridgemil.models import Model
from bridgemil.models.model import in_memory
from bridgemil.report.scalp import electrode_table, pair_table
from bridgemil.report.window_values import Floats, Index, Reading, against_others, leaves, read
from bridgemil.storage.files import write_text

if TYPE_CHECKING:
    import pandas as pd

DRAWS = 20  # random tenths that the top tenth is set against
PLURALS = {"gate": "Attention weights", "contribution": "Contributions", "probability": "Window probabilities"}
FLAT = 0.1  # attention weights are nearly equal if 90 % of them span less than this share of their mean
LISTED = 5  # highest windows
ATTENTION = (
    "An attention weight (a sigmoid gate, not a softmax) is how strongly a window enters the prediction, not which "
    "class it supports; a contribution shows that."
)


@dataclass(frozen=True)
class Person:
    """One person's windows and where they come from.

    Parameters
    ----------
    name
        Subject id, or the name of a file.
    bag
        n windows x channels x time, microvolts.
    starts
        Seconds from the start of its recording at which each window begins, n.
    recordings
        Name and number of windows of each recording, in order; by default one.
    label
        The diagnosis, if it is known.
    """

    name: str
    bag: NDArray[np.float32]
    starts: NDArray[np.float64]
    recordings: Sequence[tuple[str, int]] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.bag):
            raise BadData(f"{self.name}: {len(self.bag)} windows, but {len(self.starts)} times of them")
        counted = sum(n for _, n in self.parts)
        if counted != len(self.bag):
            raise BadData(f"{self.name}: {len(self.bag)} windows, but its recordings have {counted}")

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The recordings, also where none were named."""
        return list(self.recordings) or [(self.name, len(self.bag))]

    @property
    def recording_of(self) -> Index:
        """The number of each window's recording, n."""
        return np.repeat(np.arange(len(self.parts)), [n for _, n in self.parts])


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

    @property
    def sentence(self) -> str:
        """The numbers of the test."""
        size = f"{self.n} window{'s' * (self.n > 1)}"
        return (
            f"without the highest tenth ({size}) the probability of {self.class_name} changes by {self.top:+.3f}, "
            f"without a random tenth by {self.random.min():+.3f} to {self.random.max():+.3f} ({len(self.random)} draws)"
        )


@dataclass(frozen=True)
class Ranking:
    """One number per window, by which windows can be ranked: its spread, and the removal test."""

    name: str  # gate, contribution or probability
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
        spread = self.spread
        return self.name == "gate" and spread["p95"] - spread["p5"] < FLAT * abs(spread["mean"])

    @property
    def singles_out(self) -> bool:
        """Whether the highest windows may be listed: the values differ, and the prediction depends on these windows.

        ``predict``, ``explain`` and the pages all ask this, so that they never disagree.
        """
        return not self.is_flat and self.removal is not None and self.removal.more_than_chance

    @property
    def verdict(self) -> str:
        """``singles_out`` as a sentence, with its reason."""
        title = PLURALS[self.name]
        if self.is_flat:
            why = f"they are nearly equal (5th to 95th percentile within {FLAT:.0%} of the mean)"
        elif self.removal is None:
            why = "there is one window only"
        elif self.removal.n == 1 and not self.singles_out:
            why = "there are too few windows for the removal test"
        else:
            why = self.removal.sentence
        return f"{title} {'single' if self.singles_out else 'do not single'} out windows: {why}."

    @property
    def order(self) -> Index:
        """Windows, from the highest value to the lowest."""
        return np.argsort(-self.values, kind="stable")

    @property
    def sentences(self) -> list[str]:
        """Spread and verdict."""
        s, digits = self.spread, 3 if self.name != "contribution" else 5
        spread = (
            f"{PLURALS[self.name]}: mean {s['mean']:.{digits}f}, standard deviation {s['sd']:.{digits}f}, "
            f"5-95 % {s['p5']:.{digits}f} to {s['p95']:.{digits}f}."
        )
        return [spread, self.verdict]

    def for_json(self) -> dict[str, Any]:
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
    """What a prediction rests on.

    Parameters
    ----------
    person
        Whose.
    classes, probabilities
        K names and the model's probabilities (not calibrated).
    predicted
        The number of the class that is said; of a majority vote the one with most windows.
    windows
        A row a window: window, recording, second, gate, contribution_<class>, p_<class>; ``contribution`` is that to
        the predicted class less the mean of the others'.
    rankings
        By gate, contribution or probability; empty where the model does not look at windows one by one.
    pairs, electrodes
        As ``bridgemil.report.scalp`` makes them; empty for a model whose features have no names.
    notes
        What a reader must know.
    """

    person: Person
    classes: Sequence[str]
    probabilities: Floats
    predicted: int
    windows: pd.DataFrame
    rankings: list[Ranking]
    pairs: pd.DataFrame
    electrodes: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def write_csv(self, folder: Path) -> list[Path]:
        """windows.csv, pairs.csv and electrodes.csv; those that are empty are not written."""
        folder.mkdir(parents=True, exist_ok=True)
        tables = {"windows": self.windows, "pairs": self.pairs, "electrodes": self.electrodes}
        written = []
        for name, table in tables.items():
            if len(table):
                write_text(folder / f"{name}.csv", table.to_csv(index=False))
                written.append(folder / f"{name}.csv")
        return written

    def for_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "subject": self.person.name,
            "label": self.person.label,
            "predicted": self.classes[self.predicted],
            "probabilities": {name: float(p) for name, p in zip(self.classes, self.probabilities, strict=True)},
            "windows_used": len(self.person.bag),
            "windows": {ranking.name: ranking.for_json() for ranking in self.rankings},
            "top_windows": {ranking.name: top_windows(self.person, ranking) for ranking in self.rankings},
            "notes": self.notes,
        }


def top_windows(person: Person, ranking: Ranking, most: int = LISTED) -> list[dict[str, Any]]:
    """The windows with the highest values; none where the ranking does not single out windows."""
    names, numbers = [name for name, _ in person.parts], person.recording_of
    return [
        {
            "window": int(i),
            "recording": names[numbers[i]],
            "second": float(person.starts[i]),
            "value": float(ranking.values[i]),
        }
        for i in ranking.order[: most if ranking.singles_out else 0]
    ]


def explain(
    models: Model | Sequence[Model],
    person: Person,
    background: Floats | None = None,
    background_of: str = "",
    predicted: int | None = None,
    calibrate: Callable[[Floats], Floats] | None = None,
) -> Explanation:
    """What a prediction rests on.

    Parameters
    ----------
    models
        A fitted model, or several whose probabilities are averaged (their gates, contributions and patterns are too;
        an ensemble stands for its members). Gates are of the members that have some.
    person
        Whose windows.
    background
        m x F, features of training people (or of their windows) over which patterns are computed; without them, of this
        person's windows, and the notes say so.
    background_of
        Whose these are, in words.
    predicted
        The class that is said, if not the model's likeliest (calibration may change it).
    calibrate
        K to K: the probabilities that are shown, where they are not the model's own; the removal test is of
        those.
    """
    members, readings = _read(models, person.bag)
    classes = members[0].facts.classes
    everything = np.arange(len(person.bag))
    p = _mean([reading.probabilities(everything) for reading in readings])
    likeliest = int(p.argmax()) if len(readings) > 1 else readings[0].predicted(p)
    predicted = likeliest if predicted is None else predicted
    values = _values(readings)
    rankings = _rankings(readings, values, classes[predicted], predicted, calibrate)
    pairs, electrodes, notes = _patterns(readings, classes, background, background_of)
    if not rankings:
        notes.insert(
            0, f"{members[0].facts.settings.method} does not look at windows one by one: there is no timeline."
        )
    elif values["gates"] is not None and values["contributions"] is not None:
        notes.insert(0, ATTENTION)
    if any(reading.gates is None for reading in readings) and values["gates"] is not None:
        notes.append("Attention weights are those of the member models that have them.")
    if predicted == likeliest != int(p.argmax()):
        notes.append("Most windows vote for another class than the one with the highest mean probability.")
    windows = _window_table(person, classes, values, rankings)
    return Explanation(person, classes, p, predicted, windows, rankings, pairs, electrodes, notes)


def rank_windows(
    models: Model | Sequence[Model],
    bag: NDArray[np.float32],
    predicted: int,
    calibrate: Callable[[Floats], Floats] | None = None,
) -> list[Ranking]:
    """The rankings of ``explain`` alone.

    Parameters
    ----------
    models, predicted, calibrate
        As for ``explain``.
    bag : ndarray of shape (n_windows, C, n_times)
        In microvolts.
    """
    members, readings = _read(models, bag)
    return _rankings(readings, _values(readings), members[0].facts.classes[predicted], predicted, calibrate)


def _read(models: Model | Sequence[Model], bag: NDArray[np.float32]) -> tuple[list[Model], list[Reading]]:
    """Member models, and what each computes from the windows; they share the front end's features."""
    members = [leaf for model in ([models] if isinstance(models, Model) else models) for leaf in leaves(model)]
    remember = in_memory()
    return members, [read(model, bag, remember) for model in members]


def _values(readings: Sequence[Reading]) -> dict[str, Floats | None]:
    return {name: _mean_or_none(readings, name) for name in ("gates", "contributions", "window_probabilities")}


def _rankings(
    readings: Sequence[Reading],
    values: dict[str, Floats | None],
    class_name: str,
    predicted: int,
    calibrate: Callable[[Floats], Floats] | None,
) -> list[Ranking]:
    return [
        Ranking(name, ranked, _removal(readings, ranked, class_name, predicted, calibrate))
        for name, ranked in _ranked(values, predicted)
    ]


def _mean(arrays: Sequence[Floats]) -> Floats:
    mean: Floats = np.mean(np.stack(list(arrays)), axis=0)
    return mean


def _mean_or_none(readings: Sequence[Reading], name: str) -> Floats | None:
    values = [getattr(reading, name) for reading in readings]
    given = [value for value in values if value is not None]
    return _mean(given) if given and (name == "gates" or len(given) == len(values)) else None


def _ranked(values: dict[str, Floats | None], predicted: int) -> list[tuple[str, Floats]]:
    """What windows can be ordered by."""
    gates, contributions, p = values["gates"], values["contributions"], values["window_probabilities"]
    found = [] if gates is None else [("gate", gates)]
    found += [] if contributions is None else [("contribution", against_others(contributions)[:, predicted])]
    return found + ([] if p is None else [("probability", p[:, predicted])])


def _removal(
    readings: Sequence[Reading],
    values: Floats,
    class_name: str,
    predicted: int,
    calibrate: Callable[[Floats], Floats] | None = None,
) -> Removal | None:
    n = len(values)
    if n < 2:
        return None
    size = max(1, round(n / 10))

    def shown(keep: Index) -> float:
        p = _mean([reading.probabilities(keep) for reading in readings])
        return float((p if calibrate is None else calibrate(p))[predicted])

    whole = shown(np.arange(n))

    def change(gone: Index) -> float:
        return shown(np.setdiff1d(np.arange(n), gone)) - whole

    rng = np.random.default_rng(0)
    random = np.array([change(rng.choice(n, size, replace=False)) for _ in range(DRAWS)])
    return Removal(class_name, size, change(np.argsort(-values, kind="stable")[:size]), random)


def _patterns(
    readings: Sequence[Reading], classes: Sequence[str], background: Floats | None, background_of: str
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Tables of pairs and electrodes, mean over models of the same features, and what is to be said of them.

    Where models read different features, those are shown that the background is of.
    """
    import pandas as pd

    named = [(reading, parts) for reading in readings if (parts := reading.weights())]
    if not named:
        words = "The model's features do not belong to electrodes and bands one by one: there are no scalp maps."
        return pd.DataFrame(), pd.DataFrame(), [words]
    width = 0 if background is None else background.shape[1]
    if background is None or all(len(reading.names) != width for reading, _ in named):
        background, background_of = None, "this person's windows (training people's were not at hand)"
        width = len(named[0][0].names)
    tables = [
        pair_table(reading.names, parts, _rows(reading) if background is None else background, classes)
        for reading, parts in named
        if len(reading.names) == width
    ]
    notes = [f"Patterns after Haufe et al. (2014), over {background_of}."]
    if len(tables) < len(named):
        notes.insert(0, "Scalp maps are of some of the models in it: the others read other features.")
    pairs = tables[0]
    for name in ("weight", "pattern"):
        pairs[name] = _mean([table[name].to_numpy() for table in tables])
    return pairs, electrode_table(pairs), notes


def _rows(reading: Reading) -> Floats:
    assert reading.features is not None
    return reading.features.astype(np.float64)


def _window_table(
    person: Person, classes: Sequence[str], values: dict[str, Floats | None], rankings: Sequence[Ranking]
) -> pd.DataFrame:
    import pandas as pd

    names = [name for name, _ in person.parts]
    columns: dict[str, Any] = {
        "window": range(len(person.bag)),
        "recording": [names[i] for i in person.recording_of],
        "second": person.starts,
    }
    for ranking in rankings:
        if ranking.name != "probability":
            columns[ranking.name] = ranking.values
    for prefix, key in (("contribution", "contributions"), ("p", "window_probabilities")):
        table = values[key]
        if table is not None:
            columns |= {f"{prefix}_{name}": table[:, k] for k, name in enumerate(classes)}
    return pd.DataFrame(columns)
