"""Adjustment for sites and covariates: who it is estimated from, who is not scored, and what it leaves.

Whether held-out scores follow age, sex or another covariate is a concordance on the scale of the AUROC: of two subjects
of one class, the share of pairs in which the one with the higher value has the higher score. It is .5 where a score
says nothing about the covariate within the classes, whatever the covariate says about the diagnosis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold
from bridgemil.cohort.tables import is_missing
from bridgemil.errors import BadData
from bridgemil.evaluation import metrics
from bridgemil.methods import Settings
from bridgemil.models.harmonisation import value_codes

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
GROUP_SCORES = ("balanced_accuracy", "auroc")
RESAMPLES = 2000


def harmonised(fold: Fold, cohort: Cohort, settings: Settings) -> Fold:
    """The fold with ``sites``, the subjects from whom each site is estimated, and the columns to adjust for.

    A site with training subjects is estimated from them (``people``), or from the controls among them (``controls``).
    Another site is estimated from its test subjects without their labels, which is transductive, or from some of its
    controls, who are set aside: they are not scored.
    """
    sides = (*fold.train, *fold.validation, *fold.test)
    columns = [*([settings.site_column] if settings.site_adjust != "none" else []), *settings.adjust]
    values = {name: dict(zip(cohort.subjects, cohort.column(name), strict=True)) for name in columns}
    rows = {s: {"subject": s} | {name: _plain(values[name][s]) for name in columns} for s in sides}
    _check_covariates(fold, cohort, settings, rows)
    if settings.site_adjust == "none":
        return replace(fold, rows=rows)
    if absent := sorted(s for s in sides if is_missing(rows[s][settings.site_column])):
        raise BadData(f"no {settings.site_column} is known of {', '.join(absent)}; sites cannot be adjusted")
    by_controls, sites, aside = settings.site_adjust == "controls", dict[str, tuple[str, ...]](), set[str]()
    for side in (fold.train, fold.validation, fold.test):
        of_side: dict[str, list[str]] = {}
        for subject in side:
            if not by_controls or cohort.records[subject].label == settings.control:
                of_side.setdefault(str(rows[subject][settings.site_column]), []).append(subject)
        for site, own in of_side.items():
            if site not in sites and by_controls and side is fold.test:
                own = _set_aside(site, own, settings)
                aside.update(own)
            sites.setdefault(site, tuple(sorted(own)))
    if unknown := {str(rows[s][settings.site_column]) for s in sides} - set(sites):
        raise BadData(f"{', '.join(sorted(unknown))}: no {settings.control} there; site_adjust=controls needs some")
    return replace(fold, test=tuple(s for s in fold.test if s not in aside), sites=sites, rows=rows)


def _check_covariates(fold: Fold, cohort: Cohort, settings: Settings, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse covariates that are not known of everyone, or whose effect the training controls do not show."""
    controls = [subject for subject in fold.train if cohort.records[subject].label == settings.control]
    for column in settings.adjust:
        if absent := sorted(subject for subject, row in rows.items() if is_missing(row[column])):
            raise BadData(f"no {column} is known of {', '.join(absent)}; leave them out, or do not adjust for {column}")
        value_codes(column, [row[column] for row in rows.values()])
        if controls and len(values := {str(rows[subject][column]) for subject in controls}) == 1:
            raise BadData(
                f"fold {fold.number}: the {len(controls)} training controls ({settings.control}) have one value of "
                f"{column!r} ({values.pop()}), so that its effect cannot be estimated; do not adjust for {column}"
            )


def _set_aside(site: str, controls: list[str], settings: Settings) -> list[str]:
    """Controls of a test site, drawn by a fixed rule that knows their ids only."""
    if len(controls) < settings.site_controls + 2:
        raise BadData(
            f"{site}: {len(controls)} {settings.control}, of which {settings.site_controls} would be set aside; fewer "
            "than two are left to score. Lower it: --set site_controls=N"
        )
    order = np.random.default_rng(0).permutation(len(controls))[: settings.site_controls]
    return [sorted(controls)[i] for i in order]


def _plain(value: object) -> object:
    """A value as JSON and a hash keep it."""
    return value if isinstance(value, str | int | float | None) else str(value)


def adjustment(settings: Settings, *, leaves_out: bool) -> str:
    """How the features of a method are adjusted for sites and covariates, as a sentence; empty if they are not."""
    chosen, sentences = settings.each[0], list[str]()
    site = chosen.site_column
    adjusted = f"Features were adjusted for {site} (location and scale, estimated on training"
    if chosen.site_adjust == "people":
        whose = f"a left-out {site} was" if leaves_out else f"a {site} without training subjects would be"
        sentences = [
            f"{adjusted} subjects); this assumes the same share of patients at every {site}.",
            f"Transductive: {whose} adjusted by its own unlabelled test subjects.",
        ]
    if chosen.site_adjust == "controls":
        aside = f"A left-out {site} was adjusted by {chosen.site_controls} of its controls, who were set aside and not"
        sentences = [f"{adjusted} controls).", *([f"{aside} scored."] if leaves_out else [])]
    if chosen.adjust:
        sentences.append(f"Linear effects of {', '.join(chosen.adjust)}, estimated on training controls, were removed.")
    return " ".join(sentences)


def group_scores(own: pd.DataFrame, classes: Sequence[str]) -> dict[str, Any]:
    """Scores of held-out predictions of one site or other group, with 95 % intervals over its subjects.

    ``n, accuracy, balanced_accuracy, auroc`` and ``…_low``, ``…_high``; balanced accuracy and AUROC are not there where
    the group lacks one of the ``classes``.
    """
    import pandas as pd

    low, high = metrics.accuracy_interval(own)
    row = {"n": own["subject"].nunique(), "accuracy": metrics.accuracy(own), "accuracy_low": low, "accuracy_high": high}
    if set(own["label"]) == set(classes):
        per_seed = pd.DataFrame([metrics.scores(one, classes) for _, one in own.groupby("seed")]).mean()
        for score, (low, high) in metrics.score_intervals(own, classes).items():
            row |= {score: per_seed[score], f"{score}_low": low, f"{score}_high": high}
    return row


def concordance(scores: Floats, values: Floats, strata: Sequence[str]) -> tuple[float, float, float]:
    """Share of pairs of one stratum that scores and values order alike, and its percentile bootstrap interval.

    Of ``scores`` and ``values`` (n) of each subject: ties of scores count half, pairs of equal values do not count, and
    only pairs of one stratum do. NaN where there is no pair.
    """
    codes = np.unique(np.asarray(strata), return_inverse=True)[1]
    order = np.sign(values[:, None] - values[None, :])
    counted = (order > 0) & (codes[:, None] == codes[None, :])
    alike = np.where(counted, (np.sign(scores[:, None] - scores[None, :]) + 1) / 2, 0.0)
    rng, n = np.random.default_rng(0), len(scores)
    resamples = rng.multinomial(n, np.full(n, 1 / n), RESAMPLES)  # how often each subject is drawn
    weights = np.vstack([np.ones(n), resamples])
    pairs, sums = (((weights @ of_pairs) * weights).sum(axis=1) for of_pairs in (counted, alike))
    shares = np.divide(sums, pairs, out=np.full(len(weights), np.nan), where=pairs > 0)
    low, high = np.nanquantile(shares[1:], [0.025, 0.975]) if counted.any() else (np.nan, np.nan)
    return float(shares[0]), float(low), float(high)


def associations(
    predictions: pd.DataFrame,
    rows: Mapping[str, Mapping[str, Any]],
    columns: Sequence[str],
    control: str,
    within_folds: bool,
) -> list[dict[str, Any]]:
    """How far the covariates tell patients from controls, and how far held-out scores follow them within classes.

    The score is 1 - p_<control>, mean over seeds; ``rows`` are columns by subject. Where folds are sites, only subjects
    of one fold are compared (``within_folds``). Of each ``covariate``: ``diagnosis``, the AUROC of the covariate alone
    in the better direction, and ``score``, ``score_low`` and ``score_high``, the concordance of the held-out scores
    with it.
    """
    if not columns:
        return []
    table = predictions.groupby("subject").agg(
        label=("label", "first"), fold=("fold", "first"), p=(f"p_{control}", "mean")
    )
    found = []
    for column in columns:
        known = table[[not is_missing(rows.get(str(subject), {}).get(column)) for subject in table.index]]
        own = [rows[str(subject)][column] for subject in known.index]
        codes = value_codes(column, own)
        values = np.array([float(codes.get(str(value), value)) for value in own])
        alone = concordance(values, (known["label"] != control).to_numpy().astype(np.float64), [""] * len(known))[0]
        strata = known["label"] + known["fold"].map(" {}".format) if within_folds else known["label"]
        score, low, high = concordance(1 - known["p"].to_numpy(dtype=np.float64), values, strata.tolist())
        names = {"covariate": column, "diagnosis": max(alone, 1 - alone)}
        found.append(names | {"score": score, "score_low": low, "score_high": high})
    return found
