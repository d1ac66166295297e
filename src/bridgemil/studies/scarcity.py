"""Fewer subjects or fewer windows of each: what costs more (RQ3)?

Subjects: of the k folds a subset stays, and every fold of it is test once. Windows: the last part of every subject's
windows stays, in training, validation and test. All methods see the same folds and windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folder import SubjectRecord
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.engine.plan import Experiment
from bridgemil.evaluation import metrics
from bridgemil.evaluation.results import Results, compare_tables
from bridgemil.evaluation.statistics import Comparison, corrected, points
from bridgemil.report.benchmark import paper
from bridgemil.studies import drawing, published, scores, truth
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

OPTIONS = ()
METHODS = ("majority_vote", "attention", "bridgemil")
LINES = {"majority_vote": "--", "attention": "-.", "bridgemil": "-"}  # told apart in grey, too
PERCENTS = (100, 80, 50, 20, 10)
SUBJECTS, WINDOWS = "subjects", "instances"


@dataclass(frozen=True)
class Amount:
    """How much of a cohort is used.

    Parameters
    ----------
    what
        ``subjects`` or ``instances``.
    value
        Folds, or percent of the windows.
    text
        In words; empty where all is used.
    """

    what: str
    value: int
    text: str = ""


def fold_amounts(k: int) -> list[Amount]:
    """All k folds, and 8, 6, 4 and 3 of them; of fewer than ten, the same shares, but at least 3."""
    numbers = [k, 8, 6, 4, 3] if k >= 10 else [k, *(max(3, round(share * k)) for share in (0.8, 0.6, 0.4, 0.3))]
    return [Amount(SUBJECTS, m, f"{m} of {k} folds" if m < k else "") for m in dict.fromkeys(numbers)]


def window_amounts() -> list[Amount]:
    """All windows, and the last 80, 50, 20 and 10 % of them."""
    return [Amount(WINDOWS, p, f"last {p} % of the windows" if p < 100 else "") for p in PERCENTS]


def fold_subset(split: FoldPlan, m: int, seed: int) -> FoldPlan:
    """The m folds that a seed draws, in the order of the split; fewer folds are always among the more."""
    drawn = np.random.default_rng([split.split_seed or 0, seed]).permutation(split.k)[:m]
    return FoldPlan(tuple(split.folds[i] for i in sorted(drawn.tolist())), split.split_seed)


def last_windows(cohort: Cohort, percent: int) -> dict[str, tuple[int, ...]]:
    """The numbers of the last windows of each subject, rounded up; who keeps all is not named."""
    kept = {}
    for subject, record in cohort.records.items():
        number = -(-record.n_windows * percent // 100)
        if number < record.n_windows:
            kept[subject] = tuple(range(record.n_windows - number, record.n_windows))
    return kept


def reduced(
    context: StudyContext, cohort: Cohort, method: str, amount: Amount, split_seed: int, seed: int
) -> Experiment:
    """One method, one seed, one split, with less of the cohort."""
    split = context.split(cohort, split_seed)
    if not amount.text:
        return context.experiment(cohort, method, split, seeds=(seed,))
    if amount.what == SUBJECTS:
        subset = fold_subset(split, amount.value, seed)
        return context.experiment(cohort, method, subset, seeds=(seed,), part=amount.text)
    kept = last_windows(cohort, amount.value)

    def drawn(rounds: list[Fold]) -> list[Fold]:
        return [replace(fold, kept=_kept_in(kept, fold)) for fold in rounds]

    return context.experiment(cohort, method, split, seeds=(seed,), part=amount.text, drawn=drawn)


def _kept_in(kept: dict[str, tuple[int, ...]], subjects: Fold) -> dict[str, tuple[int, ...]]:
    people = (*subjects.train, *subjects.validation, *subjects.test)
    return {subject: kept[subject] for subject in people if subject in kept}


@dataclass(frozen=True)
class Condition:
    """A method with some amount of a cohort: its experiments, a split and seed each, and what came out."""

    cohort: Cohort
    method: str
    amount: Amount
    experiments: tuple[Experiment, ...]
    results: list[Results]

    def sizes(self) -> dict[str, float]:
        """Training subjects of a run and windows of a subject, on average."""
        rounds = [fold for experiment in self.experiments for fold in experiment.cv_folds()]
        people = dict.fromkeys(subject for fold in rounds for subject in fold.test)
        kept = {subject: len(rows) for fold in rounds for subject, rows in fold.kept.items()}
        windows = [kept.get(subject, self.cohort.records[subject].n_windows) for subject in people]
        return {
            "train_subjects": float(np.mean([len(fold.train) for fold in rounds])),
            "windows": float(np.mean(windows)),
        }

    @property
    def training_folds(self) -> int:
        """Of a run: all but the test fold and, where an epoch is selected, the validation fold."""
        first = self.experiments[0]
        return first.split.k - (2 if first.settings.selects else 1)

    @property
    def chance(self) -> float:
        """Accuracy of guessing the largest class of those tested, in percent, mean over draws."""
        return 100 * float(np.mean([metrics.chance(result.labels)[0] for result in self.results]))


def perform(context: StudyContext) -> Findings:
    """Run every method with every amount, and say what is lost."""
    import pandas as pd

    conditions, left_out = _conditions(context)
    rows, losses, sentences = [], [], []
    for cohort in context.cohorts:
        mine = [condition for condition in conditions if condition.cohort is cohort]
        rows += [_row(context, condition) for condition in mine]
        lost: dict[str, list[tuple[dict[str, Any], Comparison | None]]] = {}
        for method in METHODS:
            lost[method] = [_loss(context, mine, method, what) for what in (SUBJECTS, WINDOWS)]
        against = _few_against_few(context, mine)
        family = [c for several in lost.values() for _, c in several if c is not None]
        adjusted = iter(corrected([*family, *against.values()]))
        for method, several in lost.items():
            rows_of = [None if c is None else row | scores.columns(next(adjusted)) for row, c in several]
            losses += [row for row in rows_of if row is not None]
            sentences += _sentences(context, mine, method, rows_of)
        sentences += [f"{words}: {next(adjusted).corrected_sentence}" for words in against]
    sentences += _caution(context, losses)
    tables = {"scarcity": pd.DataFrame(rows), "loss": pd.DataFrame(losses)}
    told = {(c.cohort.hash, _title(c)): c.results for c in conditions}
    return Findings(
        f"Subject and instance scarcity: {context.setup}", sentences, tables | truth.tables(context, told),
        {"scarcity": _figure(context, conditions, rows)}, footnotes=[*left_out, *_footnotes(context)],
    )  # fmt: skip


def _conditions(context: StudyContext) -> tuple[list[Condition], list[str]]:
    """Everything that was run, and in words what could not be."""
    planned, left_out = list[tuple[Cohort, str, Amount, tuple[Experiment, ...]]](), []
    draws = [(split_seed, seed) for split_seed in context.split_seeds for seed in context.seeds]
    for cohort in context.cohorts:
        k = context.split(cohort, context.split_seeds[0]).k
        for amount in (*fold_amounts(k), *window_amounts()):
            of_each = [tuple(reduced(context, cohort, method, amount, *draw) for draw in draws) for method in METHODS]
            # The methods have the same rounds, so that one speaks for all.
            if amount.text and not all(_can_train(cohort, experiment.cv_folds()) for experiment in of_each[0]):
                left_out.append(
                    f"{context.name(cohort)}: {amount.text} were not tried: a training set would have no subject of "
                    "some class, or no two windows in a row."
                )
                continue
            planned += [(cohort, m, amount, several) for m, several in zip(METHODS, of_each, strict=True)]
    results = iter(context.perform([experiment for *_, several in planned for experiment in several]))
    return [Condition(*one, [next(results) for _ in one[-1]]) for one in planned], left_out


def _can_train(cohort: Cohort, rounds: Sequence[Fold]) -> bool:
    """Whether every training set has all classes, and windows with a neighbour, which Stage 1 aligns."""
    for fold in rounds:
        people = [cohort.records[subject] for subject in fold.train]
        kept = [len(fold.kept.get(record.subject, range(record.n_windows))) for record in people]
        in_a_row = sum(_in_a_row(*one) for one in zip(people, kept, strict=True))
        if {record.label for record in people} != set(cohort.classes) or in_a_row < 2:
            return False
    return True


def _in_a_row(record: SubjectRecord, last: int) -> int:
    """How many of a subject's last windows are not alone in their recording."""
    number = 0
    for windows in reversed(record.recording_windows):
        number += min(windows, last) if min(windows, last) > 1 else 0
        last -= min(windows, last)
    return number


def _title(condition: Condition) -> str:
    return f"{condition.method}, {condition.amount.text or 'all'}"


def _row(context: StudyContext, condition: Condition) -> dict[str, Any]:
    amount = condition.amount
    return {
        "cohort": context.name(condition.cohort), "what": amount.what, "amount": amount.text or "all",
        "training_folds": condition.training_folds,
        **condition.sizes(), "method": condition.method, **scores.score(condition.results),
    }  # fmt: skip


def _ends(conditions: Iterable[Condition], method: str, what: str) -> tuple[Condition, Condition]:
    """With all of it, and with the least of it."""
    mine = [c for c in conditions if c.method == method and c.amount.what == what]
    return max(mine, key=lambda c: c.amount.value), min(mine, key=lambda c: c.amount.value)


def same_people(results: Sequence[Results], reference: Sequence[Results], names: tuple[str, str]) -> Comparison:
    """A condition against its reference, on the subjects that the same draw of both tested."""
    pairs = [
        (_shared(one.predictions, other.predictions), _shared(other.predictions, one.predictions))
        for one, other in zip(results, reference, strict=True)
    ]
    return compare_tables(results, reference, names, pairs)


def _shared(predictions: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    return predictions.merge(others[["seed", "subject"]], on=["seed", "subject"])


def _loss(
    context: StudyContext, conditions: list[Condition], method: str, what: str
) -> tuple[dict[str, Any], Comparison | None]:
    """From all to the least, and the comparison of the two; no comparison where there is no less."""
    full, least = _ends(conditions, method, what)
    if full is least:
        return {}, None
    changes = _each(least.results, metrics.accuracy) - _each(full.results, metrics.accuracy)
    before, after = full.sizes(), least.sizes()
    counted = "train_subjects" if what == SUBJECTS else "windows"
    row = {
        "cohort": context.name(full.cohort), "method": method, "what": what, "amount": least.amount.text,
        "from": before[counted], "to": after[counted], "change": 100 * float(changes.mean()),
        "change_sd": 100 * float(changes.std()) if len(changes) > 1 else None,
        "draws": len(changes),
    }  # fmt: skip
    if published.comparable(context, full.cohort):
        place = paper()["scarcity"].get(full.cohort.about["source"], {}).get(what, {})
        by_fold = _each(least.results, metrics.fold_mean) - _each(full.results, metrics.fold_mean)
        numbers = {"fold_mean_change": 100 * float(by_fold.mean())}
        row |= numbers | {"paper": float(place[method])} if method in place else {}
    return row, same_people(least.results, full.results, (least.amount.text, f"all {what}"))


def _each(results: Sequence[Results], score: Callable[[pd.DataFrame], float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([score(result.predictions) for result in results])


def _sentences(
    context: StudyContext, conditions: list[Condition], method: str, losses: Sequence[dict[str, Any] | None]
) -> list[str]:
    by_subjects, by_windows = losses
    name = f"{context.name(conditions[0].cohort)}, {method}"
    if by_windows is None:
        return [f"{name}: fewer windows were not tried."]
    windows = (
        f"from {by_windows['from']:.0f} windows a subject to the last {by_windows['to']:.0f}, "
        f"{points(by_windows['change'] / 100)} points (95 % {_span(by_windows)})"
    )
    if by_subjects is None:
        return [f"{name}: {windows}; fewer subjects were not tried: use more --folds."]
    spread = "" if by_subjects["change_sd"] is None else f" (sd over draws {by_subjects['change_sd']:.1f})"
    subjects = (
        f"from {by_subjects['from']:.0f} to {by_subjects['to']:.0f} training subjects, "
        f"{points(by_subjects['change'] / 100)} points{spread}, on the people tested with both "
        f"{points(by_subjects['gain'] / 100)} (95 % {_span(by_subjects)})"
    )
    return [
        *_nothing_to_lose(name, _ends(conditions, method, WINDOWS)[0]),
        f"{name}: {subjects}; {windows}.",
    ]


def _few_against_few(context: StudyContext, conditions: list[Condition]) -> dict[str, Comparison]:
    """The least of the people against the least of the windows, for every method that was run with both; in words."""
    gains = {}
    for method in METHODS:
        (people, few_people), (windows, few_windows) = (_ends(conditions, method, what) for what in (SUBJECTS, WINDOWS))
        if few_people is not people and few_windows is not windows:
            shares = [few_people.sizes()["train_subjects"] / people.sizes()["train_subjects"]]
            shares.append(few_windows.sizes()["windows"] / windows.sizes()["windows"])
            names = f"{100 * shares[0]:.0f} % of the training subjects", f"{100 * shares[1]:.0f} % of the windows"
            gains[f"{context.name(people.cohort)}, {method}"] = same_people(
                few_people.results, few_windows.results, names
            )
    return gains


def _nothing_to_lose(name: str, full: Condition) -> list[str]:
    """Said where a method does not beat guessing even with everything."""
    score = scores.score(full.results)
    if score["ci95_low"] > full.chance:
        return []
    return [
        f"{name}: with all subjects and windows {score['accuracy']:.1f} % (95 % {score['ci95_low']:.1f} to "
        f"{score['ci95_high']:.1f}), not better than chance ({full.chance:.1f} %): there is nothing to lose, and the "
        "losses below say little."
    ]


def _span(row: dict[str, Any]) -> str:
    return f"{points(row['gain95_low'] / 100)} to {points(row['gain95_high'] / 100)}"


def _caution(context: StudyContext, losses: list[dict[str, Any]]) -> list[str]:
    draws = len(context.seeds) * len(context.split_seeds)
    if draws == 1 and any(row["what"] == SUBJECTS for row in losses):
        return ["One seed is one draw of folds: another may show something else; --seeds 5 draws five."]
    return []


def _figure(context: StudyContext, conditions: list[Condition], rows: list[dict[str, Any]]) -> Any:
    figure, axes = drawing.canvas(2, len(context.cohorts), width=5.2, height=4.0)
    for i, cohort in enumerate(context.cohorts):
        pairs = [(c, row) for c, row in zip(conditions, rows, strict=True) if c.cohort is cohort]
        bottom = min(min(row["ci95_low"], c.chance) for c, row in pairs)
        top = max(row["ci95_high"] for _, row in pairs)
        for ax, what in zip(axes[2 * i : 2 * i + 2], (SUBJECTS, WINDOWS), strict=True):
            _draw(ax, [(c, row) for c, row in pairs if c.amount.what == what], what)
            ax.set_title(f"{context.name(cohort)}: fewer {'subjects' if what == SUBJECTS else 'windows'}", fontsize=10)
            ax.set_ylim(max(-2, bottom - 4), min(102, top + 4))  # the same for both: which falls deeper is seen
        axes[2 * i].legend(frameon=False, fontsize=8)
    return figure


def _draw(ax: Axes, pairs: list[tuple[Condition, dict[str, Any]]], what: str) -> None:
    def place(row: dict[str, Any], condition: Condition) -> float:
        return float(row["train_subjects"]) if what == SUBJECTS else float(condition.amount.value)

    places = [place(row, c) for c, row in pairs]
    apart = 0.012 * (max(places) - min(places) or 1.0)  # so that intervals do not hide each other
    for i, method in enumerate(METHODS):
        mine = [(place(row, c) + (i - 1) * apart, row) for c, row in pairs if c.method == method]
        style = drawing.look(method)
        for x, row in mine:
            ax.plot([x, x], [row["ci95_low"], row["ci95_high"]], color=style["color"], linewidth=1.5, alpha=0.7)
        ax.plot(
            [x for x, _ in mine], [row["accuracy"] for _, row in mine], label=method, markersize=6,
            linestyle=LINES[method], **style,
        )  # fmt: skip
    first = [(place(row, c), c, row) for c, row in pairs if c.method == METHODS[0]]
    ax.plot(
        [x for x, _, _ in first], [c.chance for _, c, _ in first], color="0.45", linewidth=1, linestyle=":", zorder=1,
        marker="_" if len(first) == 1 else None, label="guessing the largest class",
    )  # fmt: skip
    if what == SUBJECTS:
        ax.set_xticks([x for x, _, _ in first], [f"{x:.0f}\n({c.training_folds})" for x, c, _ in first])
        ax.set_xlabel("training subjects, mean (training folds)")
    else:
        ax.set_xticks([x for x, _, _ in first], [f"{x:.0f}\n({row['windows']:.0f})" for x, _, row in first])
        ax.set_xlabel("windows kept, the last … % (mean number a subject)")
    if len(first) == 1:  # the methods stay side by side, not as far apart as the axis is wide
        ax.set_xlim(first[0][0] - 0.2, first[0][0] + 0.2)
    ax.set_ylabel("accuracy of held-out subjects (%), 95 %")


def _footnotes(context: StudyContext) -> list[str]:
    notes = [
        "Fewer subjects: each seed (of each split) draws its folds, for all methods the same; fewer folds are among "
        "the more. Every fold of a draw is test once, so fewer people are tested too.",
        "change: the plain difference of the accuracies; with fewer folds it is between different subjects. gain: on "
        "the subjects that the same draw tested with all and with the least, paired.",
        "The least of the subjects and of the windows are not the same share: read a loss with what was left out.",
    ]
    if not any(published.comparable(context, cohort) for cohort in context.cohorts):
        notes.append("The paper's losses are of ADFTD, EEGNet, its own recipe and budget: they are not set beside.")
    return notes
