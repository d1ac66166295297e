"""Sites: who a fold's harmonisation is estimated from, who is therefore not scored, and the scores of one site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold
from bridgemil.cohort.tables import is_missing
from bridgemil.errors import BadData
from bridgemil.evaluation import metrics
from bridgemil.methods import Settings

if TYPE_CHECKING:
    import pandas as pd

GROUP_SCORES = ("balanced_accuracy", "auroc")


def harmonised(fold: Fold, cohort: Cohort, settings: Settings) -> Fold:
    """The fold with the subjects that each site is known by.

    A site with training subjects is known by them (``people``), or by the controls among them (``controls``). Another
    site is known by its own subjects without their labels, which is transductive, or by some of its controls, who are
    set aside: they are not scored.

    Parameters
    ----------
    fold : Fold
        Training, validation and test subjects.
    cohort : Cohort
        Their columns and labels.
    settings : Settings
        ``site_adjust``, ``site_column``, ``site_controls``, ``control`` and ``adjust``.
    """
    sides = (*fold.train, *fold.validation, *fold.test)
    columns = [*([settings.site_column] if settings.site_adjust != "none" else []), *settings.adjust]
    values = {name: dict(zip(cohort.subjects, cohort.column(name), strict=True)) for name in columns}
    rows = {s: {"subject": s} | {name: _plain(values[name][s]) for name in columns} for s in sides}
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
    chosen, sentences = settings.each[0], []
    site = chosen.site_column
    if chosen.site_adjust == "people":
        sentences.append(
            f"Features were adjusted for {site} (location and scale, estimated on training subjects); this assumes "
            f"the same share of patients at every {site}."
        )
        whose = f"a left-out {site} was" if leaves_out else f"a {site} without training subjects would be"
        sentences.append(f"Transductive: {whose} adjusted by its own unlabelled test subjects.")
    if chosen.site_adjust == "controls":
        sentences.append(f"Features were adjusted for {site} (location and scale, estimated on training controls).")
        if leaves_out:
            n = chosen.site_controls
            sentences.append(
                f"A left-out {site} was adjusted by {n} of its controls, who were set aside and not scored."
            )
    if chosen.adjust:
        sentences.append(f"Linear effects of {', '.join(chosen.adjust)}, estimated on training controls, were removed.")
    return " ".join(sentences)


def group_scores(own: pd.DataFrame, classes: Sequence[str]) -> dict[str, Any]:
    """Scores of the subjects of one site or other group, with 95 % intervals over them.

    Parameters
    ----------
    own : DataFrame
        Their held-out predictions.
    classes : sequence of str
        Of the cohort.

    Returns
    -------
    dict
        ``n, accuracy, balanced_accuracy, auroc`` and ``…_low``, ``…_high``; balanced accuracy and AUROC are not there
        where the group lacks a class.
    """
    import pandas as pd

    low, high = metrics.accuracy_interval(own)
    row = {"n": own["subject"].nunique(), "accuracy": metrics.accuracy(own), "accuracy_low": low, "accuracy_high": high}
    if set(own["label"]) == set(classes):
        per_seed = pd.DataFrame([metrics.scores(one, classes) for _, one in own.groupby("seed")]).mean()
        for score, (low, high) in metrics.score_intervals(own, classes).items():
            row |= {score: per_seed[score], f"{score}_low": low, f"{score}_high": high}
    return row
