"""Transfer between sites: a model of every site, and of all but one, tested at every site.

The diagonal is cross-validation within a site. A site without a subject of every class trains no model, but is tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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


class Sites:
    """The subjects of a cohort by a column, the site."""

    def __init__(self, cohort: Cohort, column: str) -> None:
        self.cohort = cohort
        self.plan = FoldPlan.leave_out(cohort.subjects, cohort.column(column), column)  # one fold per site
        # Indices of the sites that train models
        self.complete = [i for i, own in enumerate(self.plan.folds) if not self.lacking(own, TO_TRAIN)]

    def lacking(self, subjects: Sequence[str], least: int = 1) -> list[str]:
        """The classes of which there are fewer than ``least`` of these subjects."""
        labels = [self.cohort.records[subject].label for subject in subjects]
        return [name for name in self.cohort.classes if labels.count(name) < least]

    def others(self, i: int) -> tuple[str, ...]:
        """The subjects of all sites but one."""
        return tuple(subject for k, fold in enumerate(self.plan.folds) if k != i for subject in fold)

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
            validation = self.within(i, 0).folds[0] if folds[0].validation else ()
            train = tuple(subject for subject in self.plan.folds[i] if subject not in validation)
            made.append(Fold(number, train, validation, self.others(i)))
        return made

    def rest(self) -> FoldPlan | None:
        """Leave one site out, where the others train a model that one of them alone does not; None if there is none."""
        possible = [i + 1 for i in range(self.plan.k) if not self.lacking(self.others(i))]
        if self.plan.k < 3 or not possible:
            return None
        return self.plan if len(possible) == self.plan.k else replace(self.plan, tested=tuple(possible))


def perform(context: StudyContext) -> Findings:
    """Train on every site and on all but one, and test at every site."""
    import pandas as pd

    method, column = context.option("method", methods.METHOD), context.option("column", "site")
    sites = [Sites(cohort, column) for cohort in context.cohorts]
    found = context.run(pair for one in sites for pair in _planned(context, one, method))
    rows, sentences = list[dict[str, Any]](), list[str]()
    for one in sites:
        name = context.name(one.cohort)
        mine = [{"cohort": name} | row for row in _rows(one, found)]
        sentences += _sentences(name, column, one, mine)
        rows += mine
    adjusted = next(iter(found.values()))[0].adjustment
    notes = [
        f"Intervals are 95 %, over the subjects of the tested {column}; they do not include retraining variance. The "
        f"diagonal is cross-validation within a {column}. Balanced accuracy and AUROC need both classes.",
        *([adjusted] if adjusted else []),
    ]
    size = max(one.plan.k for one in sites)
    figure, panels = context.panels(len(SCORES), rows, width=1.3 * size + 2.2, height=0.75 * size + 1.9)
    for one, (cohort, axes, mine) in zip(sites, panels, strict=True):
        for ax, score in zip(axes, SCORES, strict=True):
            _draw(ax, one.plan.names, mine, score, column)
        axes[0].set_title(f"{context.name(cohort)}: {context.title(method)}", fontsize=9, loc="left")
    return Findings(
        f"Transfer between {column}s: {context.title(method)}", sentences, {"transfer": pd.DataFrame(rows)},
        {"transfer": figure}, footnotes=notes,
    )  # fmt: skip


def _planned(context: StudyContext, sites: Sites, method: str) -> Iterator[tuple[Key, Experiment]]:
    cohort, plan = sites.cohort, sites.plan
    if not sites.complete:
        raise BadData(
            f"no {plan.column} of {context.name(cohort)} has three subjects of every class to train a model on"
        )
    part = f"trained on one {plan.column}"
    yield (cohort.hash, ONE, 0), context.experiment(cohort, method, plan, part=part, drawn=sites.single)
    if (rest := sites.rest()) is not None:
        yield (cohort.hash, REST, 0), context.experiment(cohort, method, rest)
    for i in sites.complete:
        part = f"within {plan.column} {plan.names[i]}"
        for seed in context.split_seeds:
            yield (cohort.hash, WITHIN, i), context.experiment(cohort, method, sites.within(i, seed), part=part)


def _rows(sites: Sites, found: Mapping[Key, Sequence[Results]]) -> list[dict[str, Any]]:
    """One row per training and test site: scores with intervals over the subjects of the test site."""
    names, key, classes = sites.plan.names, sites.cohort.hash, sites.cohort.classes
    place = {subject: name for name, own in zip(names, sites.plan.folds, strict=True) for subject in own}
    rows, singles = [], pooled(found[key, ONE, 0])
    for number, i in enumerate(sites.complete, 1):
        own = singles[singles["fold"] == number]
        for name in names:
            if name == names[i]:
                rows.append(_row(name, name, WITHIN, pooled(found[key, WITHIN, i]), classes))
            else:
                rows.append(_row(names[i], name, ONE, own[own["subject"].map(place) == name], classes))
    if (key, REST, 0) in found:
        for fold, own in pooled(found[key, REST, 0]).groupby("fold"):
            rows.append(_row(REST, names[int(str(fold)) - 1], REST, own, classes))
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
    for site, own in zip(sites.plan.names, sites.plan.folds, strict=True):
        if absent := sites.lacking(own, TO_TRAIN):
            lines.append(f"{name}: {site} is tested, but trains no model of its own (too few {', '.join(absent)}).")
    return lines


def _draw(ax: Axes, sites: Sequence[str], rows: Sequence[Mapping[str, Any]], score: str, column: str) -> None:
    """A heat map of a score of every training and test site."""
    trained = list(dict.fromkeys(row["trained_on"] for row in rows))
    values = np.full((len(trained), len(sites)), np.nan)
    for row in rows:
        y, x = trained.index(row["trained_on"]), sites.index(row["tested_on"])
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
    ax.set_xticks(range(len(sites)), sites)
    ax.set_yticks(range(len(trained)), trained)
    ax.set_xlabel(f"tested on {column}; {SCORES[score]}, 95 %", fontsize=8)
    ax.set_ylabel(f"trained on {column}", fontsize=8)
    ax.tick_params(length=0, labelsize=8)
    ax.grid(visible=False)
    ax.spines[:].set(visible=True)
