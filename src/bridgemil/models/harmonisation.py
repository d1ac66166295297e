"""Harmonisation: differences between sites, and effects of covariates, removed from a subject's features.

Every feature of a site is shifted and scaled to the mean and the within-site standard deviation of the training sites,
as ComBat does (Johnson et al., 2007), with the site's variance shrunk towards the pooled one. The linear effect of
covariates is estimated on control subjects. Both are an affine map of the features, so that the map of a subject's mean
is the mean of its mapped windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.tables import is_missing
from bridgemil.errors import BadData, some

Floats = NDArray[np.float64]
Scale = tuple[Floats, Floats]  # x -> (x - first) / second, of F features each

PRIOR = 10  # subjects that the pooled variance counts for when a site's variance is shrunk towards it
TINY = 1e-8


@dataclass(frozen=True)
class Covariates:
    """The linear effect of P covariates on F features, estimated on control subjects."""

    codes: Mapping[str, Mapping[str, float]]  # of each column its two values as numbers; empty for a number
    centre: Floats  # P
    effect: Floats  # P x F, per unit

    @classmethod
    def fit(
        cls, rows: Sequence[Mapping[str, Any]], codes: Mapping[str, Mapping[str, float]], features: Floats
    ) -> Covariates:
        """Least squares on columns and mean features (n x F), one row per control subject, shrunk towards no effect.

        ``codes`` has of each column its two values as numbers, from the whole column (``value_codes``).

        Without shrinkage the errors of the F slopes would be a new shortcut: what is subtracted wrongly grows with the
        covariate, in patients and controls, in training and test subjects alike. The slopes of a covariate are shrunk
        by one factor, from their mean squared t value over features (empirical Bayes; Efron and Morris, 1973).
        """
        values = np.stack([_values(row, codes) for row in rows])
        centre = values.mean(axis=0)
        x, y = values - centre, features - features.mean(axis=0)
        effect, *_ = np.linalg.lstsq(x, y, rcond=None)
        free = len(y) - len(codes) - 1  # degrees of freedom
        error = np.outer(np.diag(np.linalg.pinv(x.T @ x)), np.square(y - x @ effect).sum(axis=0) / free)
        t = (effect**2 / np.maximum(error, np.finfo(float).tiny)).mean(axis=1)  # squared
        excess = np.maximum(t - free / (free - 2), 0.0)  # over what t values without any effect have
        return cls(codes, centre, effect * (excess / (excess + 1))[:, None])

    def of(self, row: Mapping[str, Any]) -> Floats:
        """What the covariates of a subject add to its features, relative to the mean control subject; F."""
        return np.asarray((_values(row, self.codes) - self.centre) @ self.effect)


def value_codes(column: str, values: Sequence[Any]) -> dict[str, float]:
    """The two values of a column such as sex as 0 and 1; none for numbers."""
    known = [value for value in values if not is_missing(value)]
    if all(_is_number(value) for value in known):
        return {}
    names = sorted({str(value) for value in known})
    if len(names) > 2:
        words = some([name for name in names if not _is_number(name)])
        wanted = "an adjustment needs numbers or two values"
        raise BadData(f"column {column!r} has {len(names)} values, not all numbers ({words}); {wanted}")
    return {name: float(number) for number, name in enumerate(names)}


def _is_number(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except (TypeError, ValueError):
        return False


def _values(row: Mapping[str, Any], codes: Mapping[str, Mapping[str, float]]) -> Floats:
    """The covariates of one subject as numbers, P."""
    found = []
    for column, names in codes.items():
        value = row.get(column)
        if is_missing(value) or (str(value) not in names if names else not _is_number(value)):
            problem = f"no usable value of {column!r} ({value})"
            raise BadData(
                f"subject {row.get('subject', '')}: {problem}; leave it out, or do not adjust for this column"
            )
        found.append(names[str(value)] if names else float(str(value)))
    return np.array(found)


@dataclass(frozen=True)
class Harmonisation:
    """Maps a subject's features to those of the training sites, which ``column`` holds.

    ``sites`` has of each known site what is subtracted from each feature and what it is divided by; ``""`` is the site
    of recordings whose site is not known. The effect of ``covariates`` is subtracted as well.
    """

    column: str = "site"
    sites: Mapping[str, Scale] = field(default_factory=dict)
    covariates: Covariates | None = None

    def scale(self, row: Mapping[str, Any]) -> Scale | None:
        """The map of a subject with these columns, x -> (x - first) / second; None where it changes nothing.

        Without columns the recording is of an unknown site, which is refused where sites are adjusted and none is "".
        """
        site = str(row.get(self.column, ""))
        scale = self.sites.get(site, self.sites.get(""))
        if self.sites and scale is None:
            raise BadData(unknown_site(self.sites, site))
        if self.covariates is None:
            return scale
        first, second = scale or (np.zeros(1), np.ones(1))
        return first + second * self.covariates.of(row), second

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The sites' maps by name, as a model stores them."""
        return {
            f"harmonisation.{part}.{name}": np.asarray(values)
            for name, scale in self.sites.items()
            for part, values in zip(("first", "second"), scale, strict=True)
        } | ({} if self.covariates is None else {"harmonisation.centre": self.covariates.centre,
                                                 "harmonisation.effect": self.covariates.effect})  # fmt: skip

    def for_json(self) -> dict[str, Any]:
        """What ``tensors`` does not hold."""
        return {"column": self.column, "covariates": None if self.covariates is None else self.covariates.codes}

    @classmethod
    def from_stored(cls, content: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Harmonisation:
        """Inverse of ``for_json`` and ``tensors``."""
        prefix = "harmonisation.first."
        names = [name.removeprefix(prefix) for name in tensors if name.startswith(prefix)]
        sites = {name: (tensors[prefix + name], tensors[f"harmonisation.second.{name}"]) for name in names}
        effect = [
            tensors[f"harmonisation.{part}"] for part in ("centre", "effect") if content["covariates"] is not None
        ]
        return cls(content["column"], sites, Covariates(content["covariates"], *effect) if effect else None)


def unknown_site(known: Iterable[str], *sites: str) -> str:
    """Why no recording of these sites can be predicted (none or "": of a site that is not stated), and what helps."""
    named = ", ".join(sorted(filter(None, sites)))
    return (
        f"the features of this model are adjusted per site, and {named or 'the site of the recording, not stated,'} is "
        f"none of its training sites ({', '.join(sorted(known))}): run `bridgemil adapt MODEL RECORDINGS of healthy "
        "subjects --out MODEL2` first"
    )


def location_scale(features: Floats, mean: Floats, deviation: Floats) -> Scale:
    """The map from a site to the mean and standard deviation of others (F each), x -> (x - first) / second.

    ``features`` (n x F) are the mean features of two or more subjects of the site.
    """
    n = len(features)
    variance = ((n - 1) * features.var(axis=0, ddof=1) + PRIOR * deviation**2) / (n - 1 + PRIOR)
    ratio = np.sqrt(np.maximum(variance, TINY)) / np.maximum(deviation, np.sqrt(TINY))
    return features.mean(axis=0) - mean * ratio, ratio


def mapped(features: NDArray[Any], scale: Scale | None) -> NDArray[Any]:
    """Features (F or n x F) after a map; unchanged where there is none."""
    return features if scale is None else ((features - scale[0]) / scale[1]).astype(features.dtype)


def fit_sites(
    means: Callable[[str], Floats], training: Mapping[str, Sequence[str]], others: Mapping[str, Sequence[str]]
) -> dict[str, Scale]:
    """The maps of all sites to the pooled training sites, from the mean features (F) of subjects.

    ``training`` and ``others`` have of each site, in training or not, the subjects by which it is known.
    """
    rows = {site: np.stack([means(subject) for subject in subjects]) for site, subjects in training.items()}
    pooled = np.concatenate(list(rows.values()))
    within = np.concatenate([values - values.mean(axis=0) for values in rows.values()])
    mean = pooled.mean(axis=0)
    deviation = np.sqrt(np.square(within).sum(axis=0) / max(len(within) - len(rows), 1))
    rows |= {site: np.stack([means(subject) for subject in subjects]) for site, subjects in others.items()}
    if few := [f"{site} ({len(values)})" for site, values in rows.items() if len(values) < 2]:
        raise BadData(f"sites with too few subjects to be adjusted: {', '.join(few)}; each needs at least 2")
    return {site: location_scale(values, mean, deviation) for site, values in rows.items()}
