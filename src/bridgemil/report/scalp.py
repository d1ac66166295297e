"""Linear weights mapped to electrodes, pairs and bands: activation patterns, tables of them, and scalp maps.

A weight may be large only because it cancels noise. Its *pattern* (Haufe et al. 2014), Cov(features) w / var(score), is
the covariance of the feature with the score, and may be interpreted physiologically.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadUse, one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from bridgemil.backbones.covariance import Feature

FEWEST = 6  # electrodes with a known place that a map is drawn of
QUANTITIES = ("own", "coupling", "power")  # columns of ``electrode_table``
Floats = NDArray[np.float64]


def haufe(features: Floats, weights: Floats) -> Floats:
    """The pattern of linear weights (F,): Cov(features) w / var(score), without computing the covariance matrix.

    The change of each of the features (m, F) per unit of the score; zero if the score does not vary.
    """
    centred = features - features.mean(axis=0)
    score = centred @ weights
    size = float(score @ score)
    pattern: Floats = centred.T @ score / size if size > 0 else np.zeros(len(weights))
    return pattern


def pair_table(
    names: Sequence[Feature], parts: Sequence[tuple[slice, Floats]], features: Floats, classes: Sequence[str]
) -> pd.DataFrame:
    """One row per class and feature: class, kind, band, first, second, weight, pattern (over ``features``, (m, F)).

    ``parts`` are the features of each classifier and its weights (K, size of the part). Weights and patterns are of the
    log-covariance's entries; the front end's factor sqrt 2 off the diagonal is undone.
    """
    import pandas as pd

    weight, pattern = np.zeros((len(classes), len(names))), np.zeros((len(classes), len(names)))
    for part, rows in parts:
        for k, row in enumerate(rows):
            weight[k, part], pattern[k, part] = row, haufe(features[:, part], row)
    factor = np.array([1.0 if name.first == name.second else math.sqrt(2) for name in names])
    table = pd.concat([pd.DataFrame(list(names))] * len(classes), ignore_index=True)
    table.insert(0, "class", np.repeat(np.array(classes, dtype=object), len(names)))
    return table.assign(weight=(weight * factor).ravel(), pattern=(pattern / factor).ravel())


def electrode_table(pairs: pd.DataFrame) -> pd.DataFrame:
    """One row per class, band and electrode: its patterns.

    ``own`` is the diagonal (log-variance of the electrode in the band), ``coupling`` the sum of the absolute
    off-diagonal patterns (covariance with other electrodes; without direction), ``power`` that of its log relative band
    power. A column is missing if the model has no such features.
    """
    import pandas as pd

    keys = ["class", "band", "electrode"]
    covariance, diagonal = pairs["kind"] == "covariance", pairs["first"] == pairs["second"]
    single, across = pairs.rename(columns={"first": "electrode"}), pairs[covariance & ~diagonal]
    sides = pd.concat([across.assign(electrode=across[side]) for side in ("first", "second")])
    columns = {
        "own": single[covariance & diagonal].set_index(keys)["pattern"],
        "coupling": sides.assign(pattern=sides["pattern"].abs()).groupby(keys)["pattern"].sum(),
        "power": single[pairs["kind"] == "power"].set_index(keys)["pattern"],
    }
    table = pd.concat({name: values for name, values in columns.items() if len(values)}, axis=1)
    rows = single[keys].drop_duplicates(ignore_index=True)
    return rows.merge(table, how="left", left_on=keys, right_index=True)


class ScalpMap(NamedTuple):
    """One map: a band, its picture (a PNG as a data address; None without known electrodes) and its values."""

    band: str
    picture: str | None
    values: dict[str, float]

    @property
    def strongest(self) -> str:
        """The three largest absolute values as text, for readers who do not see the picture."""
        names = sorted(self.values, key=lambda name: -abs(self.values[name]))[:3]
        return ", ".join(f"{name} {self.values[name]:+.3g}" for name in names)


class MapRow(NamedTuple):
    """The maps of one quantity over all bands."""

    quantity: str  # own, coupling or power; share for the subject's own relative band power
    limit: float  # the scale ends here (and at its negative, or at zero for ``coupling``); of ``share``, of all maps
    maps: list[ScalpMap]

    @property
    def signed(self) -> bool:
        """Whether values have a direction."""
        return self.quantity not in ("coupling", "share")


def scalp_maps(electrodes: pd.DataFrame, class_name: str) -> tuple[list[MapRow], list[str]]:
    """Maps of one class's patterns (``electrode_table``), and the electrodes whose place is not known.

    Fewer than ``FEWEST`` known places make no map: pictures are then None, and values are to be shown as bars.
    """
    tables = _by_quantity(electrodes, class_name) if len(electrodes) else {}
    rows = [MapRow(quantity, ends[1], band_maps(wide, ends)) for quantity, (wide, ends) in tables.items()]
    names = list(map(str, next(iter(tables.values()))[0].index)) if tables else []
    return rows, [name for name in names if name not in _places(tuple(names))[1]]


def _by_quantity(electrodes: pd.DataFrame, class_name: str) -> dict[str, tuple[pd.DataFrame, tuple[float, float]]]:
    """For each quantity a table of electrodes x bands, and the ends of its scale."""
    table = electrodes[electrodes["class"] == class_name]
    found = {}
    for quantity in [name for name in QUANTITIES if name in table]:
        wide = table.pivot(index="electrode", columns="band", values=quantity)
        wide = wide.loc[table["electrode"].unique(), table["band"].unique()]
        limit = float(np.abs(wide.to_numpy()).max()) or 1.0
        found[quantity] = wide, (0.0 if quantity == "coupling" else -limit, limit)
    return found


def plot_maps(
    electrodes: pd.DataFrame, class_name: str, quantity: str | None = None, axes: Sequence[Axes] | None = None
) -> list[Axes]:
    """Draw the maps of one class and quantity (by default the first there is), one per band, on matplotlib axes."""
    tables = _by_quantity(electrodes, class_name)
    quantity = quantity or next(iter(tables))
    one_of("quantity", quantity, tables)
    wide, ends = tables[quantity]
    names, bands = list(map(str, wide.index)), list(map(str, wide))
    info, known = _places(tuple(names))
    if not known:
        raise BadUse(f"a scalp map needs {FEWEST} electrodes of the 10-05 system; there are {', '.join(names)}")
    if axes is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=(2.2 * len(bands), 2.6))
        axes = [figure.add_subplot(1, len(bands), 1 + i) for i in range(len(bands))]
    if len(axes) != len(bands):
        raise BadUse(f"plot_patterns draws {len(bands)} bands ({', '.join(bands)}), got {len(axes)} axes")
    for ax, band in zip(axes, bands, strict=True):
        _draw(wide.loc[known, band].to_numpy(dtype=float), info, *ends, ax)
        ax.set_title(band, fontsize=9)
    return list(axes)


def band_maps(wide: pd.DataFrame, ends: tuple[float, float] | None = None) -> list[ScalpMap]:
    """A map for each column of a table with one row per electrode; by default from its lowest to its highest value."""
    info, known = _places(tuple(map(str, wide.index)))
    maps = []
    for band, values in wide.items():
        shown = values[known].to_numpy(dtype=float)
        low, high = ends or (shown.min(initial=np.inf), shown.max(initial=-np.inf))
        picture = _picture(shown, info, low, high) if known and low < high else None
        maps.append(ScalpMap(str(band), picture, {str(name): float(value) for name, value in values.items()}))
    return maps


@cache
def _places(names: tuple[str, ...]) -> tuple[Any, list[str]]:
    """MNE's description of the electrodes with a known place (by their 10-05 name), and those names; none if few."""
    import mne

    from bridgemil.cohort.channels import electrode, template

    montage = template()
    sites = {site.lower(): site for site in montage.ch_names}
    places = {name: sites[key] for name in names if (key := (electrode(name) or "").lower()) in sites}
    if len(places) < FEWEST or len(set(places.values())) < len(places):
        return None, []
    info = mne.create_info(list(places.values()), 200.0, "eeg", verbose="error")
    info.set_montage(montage, verbose="error")
    return info, list(places)


def _draw(values: Floats, info: Any, low: float, high: float, axes: Axes) -> None:
    from mne.viz import plot_topomap

    plot_topomap(
        values, info, axes=axes, show=False, contours=4, cmap="RdBu_r" if low < 0 else "viridis", vlim=(low, high),
        extrapolate="head", sensors=False,
    )  # fmt: skip


def _picture(values: Floats, info: Any, low: float, high: float) -> str:
    """One map as a small PNG that suits a light and a dark page: no text, transparent around the head."""
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(1.6, 1.6), dpi=150)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.96))
    _draw(values, info, low, high, axes)
    for line in axes.lines:  # head, nose and ears
        line.set(color="#888", clip_on=False)
    axes.margins(0.03)
    stream = io.BytesIO()
    small = io.BytesIO()
    figure.savefig(stream, format="png", transparent=True)
    Image.open(stream).quantize(128, Image.Quantize.FASTOCTREE).save(small, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(small.getvalue()).decode()
