"""Linear weights mapped to electrodes, pairs and bands: activation patterns, tables of them, and scalp maps.

A weight may be large only because it cancels noise. Its *pattern* (Haufe et al. 2014), Cov(features) w / var(score), is
the covariance of the feature with the score, and may be interpreted physiologically.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

    from bridgemil.backbones.covariance import Feature

FEWEST = 6  # electrodes with a known place that a map is drawn of
Floats = NDArray[np.float64]


def haufe(features: Floats, weights: Floats) -> Floats:
    """The pattern of linear weights: Cov(features) w / var(score), without computing the covariance matrix.

    Parameters
    ----------
    features : ndarray of shape (m, F)
        Of subjects or windows.
    weights : ndarray of shape (F,)

    Returns
    -------
    ndarray of shape (F,)
        Change of each feature per unit of the score; zero if the score does not vary.
    """
    centred = features - features.mean(axis=0)
    score = centred @ weights
    size = float(score @ score)
    pattern: Floats = centred.T @ score / size if size > 0 else np.zeros(len(weights))
    return pattern


def pair_table(
    names: Sequence[Feature],
    parts: Sequence[tuple[slice, Floats]],
    features: Floats,
    classes: Sequence[str],
) -> pd.DataFrame:
    """One row per class and feature: class, kind, band, first, second, weight, pattern.

    Weights and patterns are of the log-covariance's entries; the front end's factor sqrt 2 off the diagonal is undone.

    Parameters
    ----------
    names : sequence of Feature
        Of the F features.
    parts : sequence of (slice, ndarray)
        For each classifier the features it uses and its weights (K, size of the part).
    features : ndarray of shape (m, F)
        Over which patterns are computed.
    classes : sequence of str
        K names.
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
    diagonal = pairs["first"] == pairs["second"]
    kinds = {
        "own": pairs[(pairs["kind"] == "covariance") & diagonal],
        "power": pairs[pairs["kind"] == "power"],
    }
    columns = {
        name: rows.rename(columns={"first": "electrode"}).set_index(keys)["pattern"]
        for name, rows in kinds.items()
        if len(rows)
    }
    across = pairs[(pairs["kind"] == "covariance") & ~diagonal]
    if len(across):
        sides = [across.rename(columns={side: "electrode"})[[*keys, "pattern"]] for side in ("first", "second")]
        columns["coupling"] = pd.concat(sides).assign(pattern=lambda t: t["pattern"].abs()).groupby(keys)[
            "pattern"
        ].sum()  # fmt: skip
    table = pd.concat(columns, axis=1)
    order = pairs[["class", "band", "first"]].drop_duplicates().itertuples(index=False)
    wanted = pd.MultiIndex.from_tuples(list(order), names=keys)
    columns_in_order = [name for name in ("own", "coupling", "power") if name in table]
    return table.reindex(wanted)[columns_in_order].reset_index()


@dataclass(frozen=True)
class ScalpMap:
    """One map: a band, its picture (a PNG as a data address; None without known electrodes) and its values."""

    band: str
    picture: str | None
    values: dict[str, float]

    @property
    def strongest(self) -> str:
        """The three largest absolute values as text, for readers who do not see the picture."""
        names = sorted(self.values, key=lambda name: -abs(self.values[name]))[:3]
        return ", ".join(f"{name} {self.values[name]:+.3g}" for name in names)


@dataclass(frozen=True)
class MapRow:
    """The maps of one quantity over all bands, on one scale."""

    quantity: str  # own, coupling or power; share for the subject's own relative band power
    limit: float  # the scale ends here (and at its negative, or at zero for ``coupling``); of ``share``, of all maps
    maps: list[ScalpMap]

    @property
    def signed(self) -> bool:
        """Whether values have a direction."""
        return self.quantity not in ("coupling", "share")


def scalp_maps(electrodes: pd.DataFrame, class_name: str) -> tuple[list[MapRow], list[str]]:
    """Maps of one class's patterns, and the electrodes whose place is not known (they are in no map).

    Fewer than ``FEWEST`` known places make no map: pictures are then None, and values are to be shown as bars.

    Parameters
    ----------
    electrodes
        From ``electrode_table``.
    class_name
        Whose patterns.
    """
    table = electrodes[electrodes["class"] == class_name]
    names = list(dict.fromkeys(table["electrode"]))
    info, known = _places(names)
    rows = []
    for quantity in ("own", "coupling", "power"):
        if quantity in table:
            limit = float(np.abs(table[quantity]).max()) or 1.0
            maps = []
            for band in dict.fromkeys(table["band"]):
                values = dict(table[table["band"] == band].set_index("electrode")[quantity].items())
                shown = np.array([values[name] for name in known])
                ends = (0.0 if quantity == "coupling" else -limit, limit)
                picture = _picture(shown, info, ends) if len(known) >= FEWEST else None
                maps.append(ScalpMap(band, picture, {str(name): float(value) for name, value in values.items()}))
            rows.append(MapRow(quantity, limit, maps))
    return rows, [name for name in names if name not in known]


def power_maps(shares: pd.DataFrame) -> MapRow:
    """Maps of a subject's own relative band power; each map has its own colour scale, from its lowest to its highest.

    Parameters
    ----------
    shares : DataFrame
        One row per electrode, one column per band, in percent.
    """
    info, known = _places([str(name) for name in shares.index])
    maps = []
    for band in shares:
        values = {str(name): float(value) for name, value in shares[band].items()}
        shown = np.array([values[name] for name in known])
        drawn = len(known) >= FEWEST and float(np.ptp(shown)) > 0
        picture = _picture(shown, info, (shown.min(), shown.max()), signed=False) if drawn else None
        maps.append(ScalpMap(str(band), picture, values))
    return MapRow("share", float(shares.to_numpy().max()), maps)


def _places(names: Sequence[str]) -> tuple[Any, list[str]]:
    """MNE's description of the electrodes whose place is known by their 10-05 name, and those names."""
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


def _picture(values: Floats, info: Any, ends: tuple[float, float], signed: bool | None = None) -> str:
    """One map as a small PNG that suits a light and a dark page: no text, transparent around the head."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from mne.viz import plot_topomap
    from PIL import Image

    colours = "RdBu_r" if (ends[0] < 0 if signed is None else signed) else "viridis"
    figure = plt.figure(figsize=(1.6, 1.6), dpi=150)
    try:
        axes = figure.add_axes((0.02, 0.02, 0.96, 0.96))
        plot_topomap(
            values, info, axes=axes, show=False, contours=4, cmap=colours, vlim=ends, extrapolate="head",
            sensors=False,
        )  # fmt: skip
        for line in axes.lines:  # head, nose and ears
            line.set(color="#888", clip_on=False)
        axes.margins(0.03)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", transparent=True)
    finally:
        plt.close(figure)
    small = io.BytesIO()
    Image.open(stream).quantize(128, Image.Quantize.FASTOCTREE).save(small, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(small.getvalue()).decode()
