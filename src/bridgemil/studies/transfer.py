"""Transfer between sites: a model of every site, and of all but one, tested at every site.

The diagonal is cross-validation within a site. A site without a subject of every class trains no model, but is tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan, SubjectKFold
from bridgemil.engine.plan import Experiment
from bridgemil.errors import BadData
from bridgemil.evaluation.results import Results
from bridgemil.evaluation.sites import GROUP_SCORES, group_scores
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings, pooled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WITHIN, ONE, REST = "cross-validation within", "one other", "all others"  # how a test site's model was trained
LOWEST, DARK = 0.4, 0.75  # ends of the colour scale; from where text is white
SCORES = {"auroc": "AUROC", "balanced_accuracy": "balanced accuracy (one class: accuracy)"}
TO_TRAIN = 3  # subjects of each class that a site needs to train a model

Key = tuple[str, str, int]  # cohort hash, how models are trained, and the index of the site within which


@dataclass(frozen=True)
class Sites:
    """The subjects of a cohort by site."""

    cohort: Cohort
    plan: FoldPlan  # one fold per site

    @classmethod
    def of(cls, cohort: Cohort, column: str) -> Sites:
        """By a column of the cohort."""
        return cls(cohort, FoldPlan.leave_out(cohort.subjects, cohort.column(column), column))

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the plan's folds."""
        return self.plan.names

    def lacking(self, subjects: Sequence[str], least: int = 1) -> list[str]:
        """The classes of which there are fewer than ``least`` of these subjects."""
        labels = [self.cohort.records[subject].label for subject in subjects]
        return [name for name in self.cohort.classes if labels.count(name) < least]

    @property
    def complete(self) -> list[int]:
        """Indices of the sites that train models."""
        return [i for i, own in enumerate(self.plan.folds) if not self.lacking(own, TO_TRAIN)]

    def within(self, i: int, split_seed: int) -> FoldPlan:
        """Folds of the subjects of one site."""
        own = self.plan.folds[i]
        labels = [self.cohort.records[subject].label for subject in own]
        k = min(self.cohort.folds, *(labels.count(name) for name in self.cohort.classes))
        return SubjectKFold(k, split_seed).plan(own, labels)

    def single(self, folds: list[Fold]) -> list[Fold]:
        """Train on one complete site, test all others; where an epoch is selected, on a fold of the training site."""
        made = []
        for number, i in enumerate(self.complete, 1):
            own = self.plan.folds[i]
            validation = self.within(i, 0).folds[0] if folds[0].validation else ()
            train = tuple(subject for subject in own if subject not in validation)
            test = tuple(subject for fold in self.plan.folds if fold != own for subject in fold)
            made.append(Fold(number, train, validation, test))
        return made

    def rest(self) -> FoldPlan | None:
        """Leave one site out, where the others train a model that one of them alone does not; None if there is none."""
        everyone = {subject for fold in self.plan.folds for subject in fold}
        possible = [i for i, own in enumerate(self.plan.folds, 1) if not self.lacking(sorted(everyone - set(own)))]
        if len(self.names) < 3 or not possible:
            return None
        return self.plan if len(possible) == len(self.names) else replace(self.plan, tested=tuple(possible))


def perform(context: StudyContext) -> Findings:
    """Train on every site and on all but one, and test at every site."""
    import pandas as pd

    method, column = context.option("method", methods.METHOD), context.option("column", "site")
    sites = {cohort.hash: Sites.of(cohort, column) for cohort in context.cohorts}
    found = context.run(pair for one in sites.values() for pair in _planned(context, one, method))
    rows, sentences = list[dict[str, Any]](), list[str]()
    for cohort in context.cohorts:
        mine = _rows(sites[cohort.hash], found)
        sentences += _sentences(context.name(cohort), column, sites[cohort.hash], mine)
        rows += [{"cohort": context.name(cohort)} | row for row in mine]
    adjusted = next(iter(found.values()))[0].adjustment
    notes = [
        f"Intervals are 95 %, over the subjects of the tested {column}; they do not include retraining variance. The "
        f"diagonal is cross-validation within a {column}. Balanced accuracy and AUROC need both classes.",
        *([adjusted] if adjusted else []),
    ]
    return Findings(
        f"Transfer between {column}s: {context.title(method)}", sentences, {"transfer": pd.DataFrame(rows)},
        {"transfer": _figure(context, column, sites, rows, method)}, footnotes=notes,
    )  # fmt: skip


def _planned(context: StudyContext, sites: Sites, method: str) -> list[tuple[Key, Experiment]]:
    cohort, plan = sites.cohort, sites.plan
    if not sites.complete:
        raise BadData(
            f"no {plan.column} of {context.name(cohort)} has three subjects of every class to train a model on"
        )
    part = f"trained on one {plan.column}"
    planned = [((cohort.hash, ONE, 0), context.experiment(cohort, method, plan, part=part, drawn=sites.single))]
    if (rest := sites.rest()) is not None:
        planned.append(((cohort.hash, REST, 0), context.experiment(cohort, method, rest)))
    for i in sites.complete:
        part = f"within {plan.column} {sites.names[i]}"
        planned += [
            ((cohort.hash, WITHIN, i), context.experiment(cohort, method, sites.within(i, seed), part=part))
            for seed in context.split_seeds
        ]
    return planned


def _rows(sites: Sites, found: Mapping[Key, Sequence[Results]]) -> list[dict[str, Any]]:
    """One row per training and test site: scores with intervals over the subjects of the test site."""
    place = {subject: name for name, own in zip(sites.names, sites.plan.folds, strict=True) for subject in own}
    key, classes = sites.cohort.hash, sites.cohort.classes
    rows, singles = [], pooled(found[key, ONE, 0])
    for number, i in enumerate(sites.complete, 1):
        mine, own = sites.names[i], singles[singles["fold"] == number]
        for name in sites.names:
            if name == mine:
                rows.append(_row(mine, name, WITHIN, pooled(found[key, WITHIN, i]), classes))
            else:
                rows.append(_row(mine, name, ONE, own[own["subject"].map(place) == name], classes))
    if (key, REST, 0) in found:
        for fold, own in pooled(found[key, REST, 0]).groupby("fold"):
            rows.append(_row(REST, sites.names[int(str(fold)) - 1], REST, own, classes))
    return rows


def _row(trained: str, tested: str, how: str, predictions: Any, classes: Sequence[str]) -> dict[str, Any]:
    scores = group_scores(predictions, classes)
    low, high = 100 * scores["accuracy_low"], 100 * scores["accuracy_high"]
    row = {"trained_on": trained, "tested_on": tested, "model": how, "n": scores["n"]}
    row |= {"accuracy": 100 * scores["accuracy"], "ci95_low": low, "ci95_high": high}
    ends = {"": "", "95_low": "_low", "95_high": "_high"}
    return row | {f"{s}{new}": scores.get(f"{s}{end}", np.nan) for s in GROUP_SCORES for new, end in ends.items()}


def _sentences(name: str, column: str, sites: Sites, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Mean AUROC by how models were trained, and the sites that train none."""
    means = {how: [row["auroc"] for row in rows if row["model"] == how] for how in (WITHIN, ONE, REST)}
    texts = {WITHIN: f"within a {column}", ONE: f"of one other {column}", REST: f"of all other {column}s"}
    known = [f"{texts[how]} {np.nanmean(values):.2f}" for how, values in means.items() if not np.all(np.isnan(values))]
    lines = [f"{name}: mean AUROC of models {', '.join(known)}."]
    for site, own in zip(sites.names, sites.plan.folds, strict=True):
        if absent := sites.lacking(own, TO_TRAIN):
            lines.append(f"{name}: {site} is tested, but trains no model of its own (too few {', '.join(absent)}).")
    return lines


def _figure(
    context: StudyContext, column: str, sites: Mapping[str, Sites], rows: Sequence[Mapping[str, Any]], method: str
) -> Any:
    """Two heat maps for each cohort: AUROC and balanced accuracy of every training and test site."""
    from matplotlib.figure import Figure

    size = max(len(one.names) for one in sites.values())
    figure = Figure(figsize=(2 * (1.3 * size + 2.2), len(sites) * (0.75 * size + 1.9)), layout="constrained")
    axes = figure.subplots(len(sites), 2, squeeze=False)
    for line, cohort in zip(axes, context.cohorts, strict=True):
        mine = [row for row in rows if row["cohort"] == context.name(cohort)]
        for ax, score in zip(line, SCORES, strict=True):
            _draw(ax, sites[cohort.hash], mine, score, column)
        line[0].set_title(f"{context.name(cohort)}: {context.title(method)}", fontsize=9, loc="left")
    return figure


def _draw(ax: Axes, sites: Sites, rows: Sequence[Mapping[str, Any]], score: str, column: str) -> None:
    trained = list(dict.fromkeys(row["trained_on"] for row in rows))
    values = np.full((len(trained), len(sites.names)), np.nan)
    for row in rows:
        y, x = trained.index(row["trained_on"]), sites.names.index(row["tested_on"])
        one_class = score != "auroc" and np.isnan(row[score])
        value, low, high = (row[key] for key in (score, f"{score}95_low", f"{score}95_high"))
        if one_class:
            value, low, high = (row[key] / 100 for key in ("accuracy", "ci95_low", "ci95_high"))
        text, colour = f"{value:.2f}{'*' if one_class else ''}\n({low:.2f}-{high:.2f})", "black"
        if np.isnan(value):
            text, colour = "one class", "0.4"
        elif value > DARK:
            colour = "white"
        values[y, x] = value
        weight = "bold" if row["model"] == WITHIN else "normal"
        ax.text(x, y, text, ha="center", va="center", fontsize=8, color=colour, weight=weight)
    ax.imshow(np.ma.masked_invalid(values), cmap="Blues", vmin=LOWEST, vmax=1.0, aspect="auto")
    ax.set_facecolor("0.93")
    ax.set_xticks(range(len(sites.names)), sites.names)
    ax.set_yticks(range(len(trained)), trained)
    ax.set_xlabel(f"tested on {column}; {SCORES[score]}, 95 %", fontsize=8)
    ax.set_ylabel(f"trained on {column}", fontsize=8)
    ax.tick_params(length=0, labelsize=8)
