"""Fewer subjects or fewer windows of each: which costs more accuracy (RQ3)?

Subjects: of the k folds a subset stays, and every fold of it is the test fold once. Windows: the last part of every
subject's windows stays, in training, validation and test. All methods have the same folds and windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.engine.plan import Experiment
from bridgemil.evaluation import metrics
from bridgemil.evaluation.results import Results, compare_splits
from bridgemil.evaluation.statistics import Comparison
from bridgemil.report.figures import CHANCE, intervals, look
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings, comparison_columns, family, prose, score

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

METHODS = ("majority_vote", "attention", "bridgemil")
LINES = {"majority_vote": "--", "attention": "-.", "bridgemil": "-"}  # distinguishable in grey, too
PERCENTS = (100, 80, 50, 20, 10)
SUBJECTS, WINDOWS, BOTH = "subjects", "instances", "both"


class Amount(NamedTuple):
    """How much of a cohort is used."""

    what: str  # subjects or instances
    value: int  # folds, or percent of the windows
    text: str = ""  # empty where all is used


def amounts(k: int) -> list[Amount]:
    """All of k folds, and 8, 6, 4 and 3 of them; all windows, and the last 80, 50, 20 and 10 % of them.

    Of fewer than ten folds, the same shares, but at least 3.
    """
    fewer = [8, 6, 4, 3] if k >= 10 else [min(k, max(3, round(share * k))) for share in (0.8, 0.6, 0.4, 0.3)]
    return [
        *(Amount(SUBJECTS, m, f"{m} of {k} folds" if m < k else "") for m in dict.fromkeys([k, *fewer])),
        *(Amount(WINDOWS, p, f"last {p} % of the windows" if p < 100 else "") for p in PERCENTS),
    ]


def reduced(
    context: StudyContext, cohort: Cohort, method: str, amount: Amount, split_seed: int, seed: int
) -> Experiment:
    """One method, one seed, one split, with less of the cohort."""
    split = context.split(cohort, split_seed)
    if amount.what == SUBJECTS and amount.text:
        # A prefix of one permutation: fewer folds are a subset of more.
        drawn = np.random.default_rng([split_seed, seed]).permutation(split.k)[: amount.value]
        split = FoldPlan(tuple(split.folds[i] for i in sorted(drawn.tolist())), split.split_seed)

    def last_windows(folds: list[Fold]) -> list[Fold]:
        return [replace(fold, kept=_kept(cohort, fold, amount.value)) for fold in folds]

    only_last = last_windows if amount.what == WINDOWS and amount.text else None
    return context.experiment(cohort, method, split, seeds=(seed,), part=amount.text, drawn=only_last)


def _kept(cohort: Cohort, fold: Fold, percent: int) -> dict[str, tuple[int, ...]]:
    """The numbers of the last windows of each subject, rounded up; without the subjects who keep all."""
    sizes = {subject: cohort.records[subject].n_windows for subject in (*fold.train, *fold.validation, *fold.test)}
    kept = {subject: range(n - -(-n * percent // 100), n) for subject, n in sizes.items()}
    return {subject: tuple(rows) for subject, rows in kept.items() if len(rows) < sizes[subject]}


@dataclass(frozen=True)
class Condition:
    """A method with some amount of a cohort: its experiments, one per split and seed, and their results."""

    cohort: Cohort
    method: str
    amount: Amount
    experiments: tuple[Experiment, ...]
    results: list[Results] = field(default_factory=list)

    def sizes(self) -> dict[str, float]:
        """Mean number of training subjects of a run (``subjects``) and of windows of a subject (``instances``)."""
        folds = [fold for experiment in self.experiments for fold in experiment.cv_folds()]
        kept = {subject: len(rows) for fold in folds for subject, rows in fold.kept.items()}
        tested = dict.fromkeys(subject for fold in folds for subject in fold.test)
        windows = [kept.get(subject, self.cohort.records[subject].n_windows) for subject in tested]
        return {SUBJECTS: float(np.mean([len(f.train) for f in folds])), WINDOWS: float(np.mean(windows))}

    @property
    def chance(self) -> float:
        """The chance level of the subjects tested, in percent, mean over draws."""
        return 100 * float(np.mean([metrics.chance(result.labels)[0] for result in self.results]))

    def each(self, metric: Callable[[pd.DataFrame], float]) -> NDArray[np.float64]:
        """A metric of every draw."""
        return np.array([metric(result.predictions) for result in self.results])


Ends = tuple[Condition, Condition]  # with all of it, and with the least of it


def perform(context: StudyContext) -> Findings:
    """Run every method with every amount, and compare the least with all."""
    import pandas as pd

    conditions, left_out = _conditions(context)
    rows = [
        {
            "cohort": context.name(c.cohort), "what": c.amount.what, "amount": c.amount.text or "all",
            # all but the test fold and, where an epoch is selected, the validation fold
            "training_folds": c.experiments[0].split.k - (2 if c.experiments[0].settings.selects else 1),
            "train_subjects": c.sizes()[SUBJECTS], "windows": c.sizes()[WINDOWS], "method": c.method,
            **score(c.results),
        }
        for c in conditions
    ]  # fmt: skip
    losses, sentences = list[dict[str, Any]](), list[str]()
    for cohort in context.cohorts:
        ends: dict[tuple[str, str], Ends] = {}
        for method, what in ((method, what) for method in METHODS for what in (SUBJECTS, WINDOWS)):
            # from all of it to the least
            mine = [c for c in conditions if (c.cohort, c.method, c.amount.what) == (cohort, method, what)]
            ends[method, what] = mine[0], mine[-1]
        against = family(_comparisons(ends))
        for method in METHODS:
            found = {
                what: _loss(context, *ends[method, what]) | comparison_columns(against[method, what])
                for what in (SUBJECTS, WINDOWS)
                if (method, what) in against
            }
            losses += found.values()
            full, _ = ends[method, WINDOWS]
            sentences += prose(
                "scarcity_sentences", name=f"{context.name(cohort)}, {method}", subjects=found.get(SUBJECTS),
                windows=found.get(WINDOWS), full=score(full.results), chance=full.chance,
            )  # fmt: skip
        both = {method: c.corrected_sentence for (method, what), c in against.items() if what == BOTH}
        sentences += [f"{context.name(cohort)}, {method}: {sentence}" for method, sentence in both.items()]
    draws = len(context.protocol.seed_list) * len(context.split_seeds)
    if draws == 1 and any(row["what"] == SUBJECTS for row in losses):
        sentences.append("One seed is one draw of folds: another may show something else; --seeds 5 draws five.")
    return Findings(
        f"Subject and instance scarcity: {context.setup}", sentences,
        {"scarcity": pd.DataFrame(rows), "loss": pd.DataFrame(losses)},
        {"scarcity": _figure(context, conditions, rows)},
        footnotes=prose("scarcity_notes", left_out=left_out, paper=context.is_papers),
        runs={(c.cohort.hash, f"{c.method}, {c.amount.text or 'all'}"): c.results for c in conditions},
    )  # fmt: skip


def _conditions(context: StudyContext) -> tuple[list[Condition], list[tuple[str, str]]]:
    """Everything that was run, and the cohorts and amounts that could not be."""
    planned, left_out = list[Condition](), []
    draws = [(split_seed, seed) for split_seed in context.split_seeds for seed in context.protocol.seed_list]
    for cohort in context.cohorts:
        for amount in amounts(context.split(cohort, context.split_seeds[0]).k):
            of_each = [tuple(reduced(context, cohort, method, amount, *draw) for draw in draws) for method in METHODS]
            # The methods have the same folds: one is representative of all.
            if amount.text and not all(_can_train(cohort, experiment.cv_folds()) for experiment in of_each[0]):
                left_out.append((context.name(cohort), amount.text))
            else:
                planned += [Condition(cohort, m, amount, made) for m, made in zip(METHODS, of_each, strict=True)]
    results = context.run((i, experiment) for i, c in enumerate(planned) for experiment in c.experiments)
    return [replace(condition, results=results[i]) for i, condition in enumerate(planned)], left_out


def _can_train(cohort: Cohort, folds: Sequence[Fold]) -> bool:
    """Whether every training set has all classes, and consecutive windows, which Stage 1 aligns."""
    for fold in folds:
        records, consecutive = [cohort.records[subject] for subject in fold.train], False
        for record in records:  # whether two of the last windows are neighbours in their recording
            ends = np.cumsum(record.recording_windows)
            first = ends[-1] - len(fold.kept.get(record.subject, range(record.n_windows)))
            consecutive |= bool((ends - np.maximum(ends - record.recording_windows, first) > 1).any())
        if {record.label for record in records} != set(cohort.classes) or not consecutive:
            return False
    return True


def _comparisons(ends: Mapping[tuple[str, str], Ends]) -> dict[tuple[str, str], Comparison]:
    """The least against all; and of methods run with both, the least of the subjects against that of the windows."""
    found = {
        (method, what): _on_shared(least, full, (least.amount.text, f"all {what}"))
        for (method, what), (full, least) in ends.items()
        if least is not full
    }
    for method in METHODS:
        (full, few_subjects), (same, few_windows) = ends[method, SUBJECTS], ends[method, WINDOWS]
        if few_subjects is not full and few_windows is not same:
            subjects = few_subjects.sizes()[SUBJECTS] / full.sizes()[SUBJECTS]
            windows = few_windows.sizes()[WINDOWS] / same.sizes()[WINDOWS]
            names = f"{100 * subjects:.0f} % of the training subjects", f"{100 * windows:.0f} % of the windows"
            found[method, BOTH] = _on_shared(few_subjects, few_windows, names)
    return found


def _on_shared(one: Condition, other: Condition, names: tuple[str, str]) -> Comparison:
    """The comparison on the subjects that the same draw of both tested, with the folds of the first."""
    keys, shared = ["seed", "subject"], []
    for a, b in zip(one.results, other.results, strict=True):
        mine = a.predictions.merge(b.predictions[keys], on=keys)
        theirs = b.predictions.drop(columns="fold").merge(mine[[*keys, "fold"]], on=keys)
        shared.append((replace(a, predictions=mine), replace(b, predictions=theirs)))
    return compare_splits([mine for mine, _ in shared], [theirs for _, theirs in shared], names=names)


def _loss(context: StudyContext, full: Condition, least: Condition) -> dict[str, Any]:
    """From all to the least."""
    what, method = least.amount.what, least.method
    changes = least.each(metrics.accuracy) - full.each(metrics.accuracy)
    row = {
        "cohort": context.name(full.cohort), "method": method, "what": what, "amount": least.amount.text,
        "from": full.sizes()[what], "to": least.sizes()[what], "change": 100 * float(changes.mean()),
        "change_sd": 100 * float(changes.std()) if len(changes) > 1 else None, "draws": len(changes),
    }  # fmt: skip
    published = context.published(full.cohort, "scarcity", what)
    if method in published:
        by_fold = least.each(metrics.fold_mean) - full.each(metrics.fold_mean)
        row |= {"fold_mean_change": 100 * float(by_fold.mean()), "paper": float(published[method])}
    return row


def _figure(context: StudyContext, conditions: list[Condition], rows: list[dict[str, Any]]) -> Any:
    drawn = [row | {"value": c.amount.value, "chance": c.chance} for c, row in zip(conditions, rows, strict=True)]
    figure, panels = context.panels(2, drawn, width=5.2, height=4.0)
    for cohort, axes, mine in panels:
        bottom = min(min(row["ci95_low"], row["chance"]) for row in mine)
        top = max(row["ci95_high"] for row in mine)
        for ax, what in zip(axes, (SUBJECTS, WINDOWS), strict=True):
            _draw(ax, [row for row in mine if row["what"] == what], what)
            ax.set_title(f"{context.name(cohort)}: fewer {'subjects' if what == SUBJECTS else 'windows'}", fontsize=10)
            ax.set_ylim(max(-2, bottom - 4), min(102, top + 4))  # the same for both panels
        axes[0].legend(frameon=False, fontsize=8)
    return figure


def _draw(ax: Axes, rows: list[dict[str, Any]], what: str) -> None:
    x, below, label = "train_subjects", "training_folds", "training subjects, mean (training folds)"
    if what == WINDOWS:
        x, below, label = "value", "windows", "windows kept, the last … % (mean number per subject)"
    first = [row for row in rows if row["method"] == METHODS[0]]
    xs = [row[x] for row in first]
    apart = 0.012 * (max(xs) - min(xs) or 1.0)  # so that intervals do not hide each other
    for i, method in enumerate(METHODS):
        places, mine = [x + (i - 1) * apart for x in xs], [row for row in rows if row["method"] == method]
        intervals(ax, places, mine, label=method, markersize=6, elinewidth=1.5, linestyle=LINES[method], **look(method))
    marker, chance = "_" if len(xs) == 1 else None, [row["chance"] for row in first]
    ax.plot(xs, chance, color="0.45", linewidth=1, linestyle=":", zorder=1, marker=marker, label=CHANCE)
    ax.set_xticks(xs, [f"{row[x]:.0f}\n({row[below]:.0f})" for row in first])
    ax.set(xlabel=label, ylabel="accuracy of held-out subjects (%), 95 %")
    if len(xs) == 1:  # the methods stay side by side, not as far apart as the axis is wide
        ax.set_xlim(xs[0] - 0.2, xs[0] + 0.2)
