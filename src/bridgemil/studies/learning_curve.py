"""The gain to expect of more subjects: the same test subjects, predicted by models that were trained on fewer.

Test (and validation) subjects of every fold stay; its training subjects are thinned, class by class in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold
from bridgemil.engine.plan import Experiment
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.results import Results
from bridgemil.studies import drawing, power_law, scores, truth
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings
from bridgemil.studies.power_law import Forecast

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

OPTIONS = ("method", "sizes", "draws")
DRAWS, STEPS, RESAMPLES = 3, 5, 300
LEAST_OF_A_CLASS = 2
MULTIPLES = (1.5, 2.0)  # of the subjects there are now, to forecast


@dataclass(frozen=True)
class Point:
    """One number of training subjects: its draws, and their results.

    Parameters
    ----------
    n
        Training subjects of a run, mean over folds where all are used.
    is_all
        Whether nobody is left out.
    draws
        The results of each draw, a split each.
    """

    n: float
    is_all: bool
    draws: tuple[tuple[Results, ...], ...]

    @property
    def results(self) -> list[Results]:
        """Of all draws."""
        return [result for draw in self.draws for result in draw]


@dataclass(frozen=True)
class Curve:
    """The learning curve of a cohort.

    Parameters
    ----------
    cohort
        Whose.
    points
        From few people to all.
    forecast
        The gain to expect of more; None where too few numbers were tried.
    """

    cohort: Cohort
    points: list[Point]
    forecast: Forecast | None

    @cached_property
    def drawn(self) -> tuple[NDArray[np.float64], ...] | None:
        """What is drawn: subjects, value and the bounds of its 95 %; the fit up to today, then the forecast from it."""
        if self.forecast is None:
            return None
        now, n = self.points[-1].n, np.geomspace(self.points[0].n, self.points[-1].n, 100)
        beyond = np.geomspace(now * (1 + 1e-9), MULTIPLES[-1] * now, 100)
        forecast = np.array([self.forecast.score(float(more)) for more in beyond]).T
        return np.append(n, beyond), *np.concatenate([np.stack(self.forecast.fitted(n)), forecast], axis=1)


def thinned(cohort: Cohort, fold: Fold, n: int, rng: np.random.Generator) -> Fold:
    """The fold with n training subjects; with the same generator, a smaller n gives some of a larger one's.

    Parameters
    ----------
    cohort, fold
        Knows the classes; has all training subjects.
    n
        How many training subjects stay.
    rng
        Draws who goes first within a class.
    """
    chosen = set(drawn_order(fold.train, [cohort.records[s].label for s in fold.train], rng)[:n])
    return replace(fold, train=tuple(subject for subject in fold.train if subject in chosen))


def drawn_order(subjects: Sequence[str], labels: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Everybody in an order whose every beginning has the classes in proportion, and two of each at first.

    Parameters
    ----------
    subjects, labels
        Who, and their classes.
    rng
        Draws who goes first within a class.
    """
    classes = sorted(set(labels))
    waiting = {}
    for name in classes:
        people = [subject for subject, label in zip(subjects, labels, strict=True) if label == name]
        waiting[name] = [people[i] for i in rng.permutation(len(people))]
    sizes, order = {name: len(people) for name, people in waiting.items()}, list[str]()
    taken = dict.fromkeys(classes, 0)
    for _ in subjects:
        left = [name for name in classes if taken[name] < sizes[name]]
        few = [name for name in left if taken[name] < LEAST_OF_A_CLASS]
        # Webster's rule: unlike rounding shares for each n, it never takes back whom it gave.
        name = min(few, key=lambda c: taken[c]) if few else max(left, key=lambda c: sizes[c] / (2 * taken[c] + 1))
        order.append(waiting[name][taken[name]])
        taken[name] += 1
    return order


def usual_sizes(smallest: int, n_classes: int) -> list[int]:
    """About five steps of equal ratio, from ten people (four of each class, if that is more) to all; without all.

    Parameters
    ----------
    smallest
        The smallest training set of the split.
    n_classes
        Of the cohort.
    """
    first = max(10, 4 * n_classes)
    if first >= smallest:
        return []
    steps = np.geomspace(first, smallest, STEPS).round().astype(int)
    return [int(n) for n in dict.fromkeys(steps.tolist()) if n < smallest]


def perform(context: StudyContext) -> Findings:
    """Train on fewer and fewer people, fit the curve, and say what more people might give."""
    import pandas as pd

    method = context.option("method", methods.METHOD)
    curves = [_curve(cohort, points) for cohort, points in _points(context, method).items()]
    rows = [_row(context, curve, point) for curve in curves for point in curve.points]
    sentences = [said for curve in curves for said in _sentences(context, curve, _rows_for(rows, context, curve))]
    tables = {"learning_curve": pd.DataFrame(rows), "fit": pd.DataFrame([_fit_row(context, curve) for curve in curves])}
    forecasts = [row for curve in curves for row in _forecast_rows(context, curve)]
    tables |= {"forecast": pd.DataFrame(forecasts)} if forecasts else {}
    several = any(len(point.draws) > 1 for curve in curves for point in curve.points)
    told = {(c.cohort.hash, f"{method}, {_people(p)}"): p.results for c in curves for p in c.points}
    return Findings(
        f"Learning curve of {context.title(method)}", sentences,
        tables | truth.tables(context, told), {"learning_curve": _figure(context, curves, rows, method)},
        _drawn_curves(context, curves),
        footnotes=[
            "A forecast is no promise: it assumes that more subjects are of the same kind, recorded in the same way, "
            "and that the curve continues as a power law. It is made whether or not the rise is significant: "
            "forecasting significant rises only would be biased upwards. The fitted curve cannot fall, so the expected "
            "gain is never below zero; a forecast is today's observed value plus the expected gain.",
            "training_subjects are the subjects a model was trained on: of a split's k folds, all but the test fold "
            "and, where an epoch is selected, the validation fold. Test and validation subjects are the same for "
            "every number.",
            "Intervals of the points are over test subjects within their class; sd is over draws of training subjects. "
            "Intervals of gain and forecast are of curves refitted to test subjects drawn anew and to the variance "
            "over draws of training subjects" + ("." if several else ", which one draw does not show: use --draws 3."),
        ],
    )  # fmt: skip


def _points(context: StudyContext, method: str) -> dict[Cohort, list[Point]]:
    """Run everything, and sort it by the number of training subjects."""
    n_draws = int(context.option("draws", DRAWS))
    if n_draws < 1:
        raise BadUse(f"draws must be at least 1, got {n_draws}")
    keys, experiments = [], list[Experiment]()
    for cohort in context.cohorts:
        for n in (None, *sizes_of(context, cohort, method)):  # whole runs first: a part that equals one is that run
            for draw in range(1 if n is None else n_draws):
                for split_seed in context.split_seeds:
                    keys.append((cohort, n, draw))
                    experiments.append(fewer_people(context, cohort, method, n, draw, split_seed))
    gathered: dict[tuple[Cohort, int | None], dict[int, list[Results]]] = {}
    for (cohort, n, draw), results in zip(keys, context.perform(experiments), strict=True):
        gathered.setdefault((cohort, n), {}).setdefault(draw, []).append(results)
    points: dict[Cohort, list[Point]] = {}
    for (cohort, n), draws in gathered.items():
        everybody = float(np.mean([len(r.train) for r in _rounds(context, cohort, method)]))
        several = tuple(tuple(draw) for draw in draws.values())
        points.setdefault(cohort, []).append(Point(everybody if n is None else float(n), n is None, several))
    return {cohort: sorted(mine, key=lambda point: (point.is_all, point.n)) for cohort, mine in points.items()}


def _rounds(context: StudyContext, cohort: Cohort, method: str) -> list[Fold]:
    """With all training subjects, of every split."""
    splits = (context.split(cohort, seed) for seed in context.split_seeds)
    return [fold for split in splits for fold in context.experiment(cohort, method, split).cv_folds()]


def sizes_of(context: StudyContext, cohort: Cohort, method: str) -> list[int]:
    """The numbers of training subjects below all of them: the user's, or the usual ones."""
    numbers = [len(fold.train) for fold in _rounds(context, cohort, method)]
    smallest, largest, classes = min(numbers), max(numbers), len(cohort.classes)
    least = LEAST_OF_A_CLASS * classes
    chosen = context.option("sizes", None)
    if chosen is None:
        return usual_sizes(smallest, classes)
    wrong = [str(n) for n in chosen if not least <= n <= smallest]
    if wrong:
        raise BadUse(
            f"--sizes {', '.join(wrong)}: {context.name(cohort)} has {smallest} subjects in its smallest training set; "
            f"give numbers from {least} ({LEAST_OF_A_CLASS} of each class) to {smallest}; all are always run too"
        )
    return sorted({int(n) for n in chosen if n < largest})


def fewer_people(
    context: StudyContext, cohort: Cohort, method: str, n: int | None, draw: int, split_seed: int
) -> Experiment:
    """The usual split with n training subjects in every fold; None: with all."""
    split = context.split(cohort, split_seed)
    if n is None:
        return context.experiment(cohort, method, split)

    def drawn(rounds: list[Fold]) -> list[Fold]:
        return [thinned(cohort, r, n, np.random.default_rng([split_seed, draw, r.fold])) for r in rounds]

    return context.experiment(cohort, method, split, part=f"{n} training subjects, draw {draw + 1}", drawn=drawn)


def _curve(cohort: Cohort, points: list[Point]) -> Curve:
    tables = [scores.right_of_each(point.results) for point in points]
    labels = tables[0]["label"]
    if any(not table["label"].equals(labels) for table in tables):
        raise BadData("the runs of a learning curve did not test the same people; delete them and run again")
    right = np.stack([table["right"].to_numpy(dtype=np.float64) for table in tables], axis=1)
    observed, resampled = scores.balanced_resamples(right, labels.tolist(), RESAMPLES)
    draws = [_of_draws(point, labels.tolist()) for point in points]
    resampled = power_law.with_draws(resampled, draws, np.random.default_rng(0))
    n = np.array([point.n for point in points])
    weights = np.array([float(len(point.draws)) for point in points])
    return Curve(cohort, points, power_law.forecast(n, observed, resampled, weights))


def _of_draws(point: Point, labels: list[str]) -> NDArray[np.float64]:
    """Balanced accuracy of each draw of training subjects."""
    right = [scores.right_of_each(draw)["right"].to_numpy(dtype=np.float64) for draw in point.draws]
    return scores.balanced_resamples(np.stack(right, axis=1), labels, 1)[0]


def _row(context: StudyContext, curve: Curve, point: Point) -> dict[str, Any]:
    each = [scores.score(draw) for draw in point.draws]
    low, high = scores.balanced_interval(point.results)
    return {
        "cohort": context.name(curve.cohort), "training_subjects": point.n, "all": point.is_all,
        "balanced_accuracy": float(np.mean([row["balanced_accuracy"] for row in each])),
        "balanced_accuracy95_low": low, "balanced_accuracy95_high": high,
        "sd": float(np.std([row["balanced_accuracy"] for row in each])) if len(each) > 1 else None,
        "draws": len(each), **{name: float(np.mean([row[name] for row in each])) for name in ("auroc", "accuracy")},
        "subjects": each[0]["subjects"],
    }  # fmt: skip


def _fit_row(context: StudyContext, curve: Curve) -> dict[str, Any]:
    row: dict[str, Any] = {"cohort": context.name(curve.cohort), "curve": "a - b n^-c"}
    if curve.forecast is None:
        return row | dict.fromkeys(("a", "b", "c", "rise", "rise95_low", "rise95_high"))
    law, rise = curve.forecast.law, curve.forecast.rise
    ceiling, gap, rate = (float(values[0]) for values in (law.ceiling, law.gap, law.rate))
    row |= {"a": ceiling, "b": gap * law.largest**rate, "c": rate}
    return row | dict(zip(("rise", "rise95_low", "rise95_high"), rise, strict=True))


def _forecast_rows(context: StudyContext, curve: Curve) -> list[dict[str, Any]]:
    """The gain to expect of more subjects, and today's value with it."""
    if curve.forecast is None:
        return []
    rows = []
    for times in MULTIPLES:
        n = times * curve.points[-1].n
        row: dict[str, Any] = {"cohort": context.name(curve.cohort), "times": times, "training_subjects": n}
        for name, found in (("expected_gain", curve.forecast.gain(n)), ("balanced_accuracy", curve.forecast.score(n))):
            row |= dict(zip((name, f"{name}95_low", f"{name}95_high"), found, strict=True))
        rows.append(row)
    return rows


def _sentences(context: StudyContext, curve: Curve, rows: list[dict[str, Any]]) -> list[str]:
    name, first, last = context.name(curve.cohort), curve.points[0], curve.points[-1]
    sentences = [
        f"{name}: with {row['times']:g} times as many subjects ({row['training_subjects']:.0f} to train on) the "
        f"expected gain is {row['expected_gain']:+.3f} (95 % {_span(row, 'expected_gain')}): balanced accuracy from "
        f"{rows[-1]['balanced_accuracy']:.2f} now to {_said(row)}."
        for row in _forecast_rows(context, curve)
    ]
    if curve.forecast is None:
        few = f"a curve needs at least {power_law.LEAST_SIZES} numbers of subjects, and {len(curve.points)} were tried"
        sentences.append(f"{name}: no forecast: {few} (choose more: --sizes).")
    else:
        value, low, high = curve.forecast.rise
        verdict = "excludes zero" if low > 0 or high < 0 else "does not exclude zero: no significant rise"
        sentences.append(
            f"{name}: {value:+.3f} for every doubling of subjects so far (95 % {low:+.3f} to {high:+.3f}, which "
            f"{verdict})."
        )
        if value < 0:
            sentences.append(f"{name}: the score does not rise with more subjects here, so the expected gain is zero.")
    observed = f"{name}: balanced accuracy {_said(rows[-1])} with {_people(last)}"
    observed += f", {_said(rows[0])} with {_people(first)}." if first is not last else "; no smaller number was tried."
    return [*sentences, observed]


def _said(row: dict[str, Any]) -> str:
    return f"{row['balanced_accuracy']:.2f} (95 % {_span(row, 'balanced_accuracy')})"


def _span(row: dict[str, Any], what: str) -> str:
    form = "+.3f" if what == "expected_gain" else ".2f"
    return f"{row[what + '95_low']:{form}} to {row[what + '95_high']:{form}}"


def _rows_for(rows: list[dict[str, Any]], context: StudyContext, curve: Curve) -> list[dict[str, Any]]:
    return [row for row in rows if row["cohort"] == context.name(curve.cohort)]


def _people(point: Point) -> str:
    return f"all {point.n:.0f} training subjects" if point.is_all else f"{point.n:.0f} training subjects"


def _figure(context: StudyContext, curves: list[Curve], rows: list[dict[str, Any]], method: str) -> Any:
    figure, axes = drawing.canvas(len(curves), width=5.8, height=4.2)
    for ax, curve in zip(axes, curves, strict=True):
        _draw_points(ax, _rows_for(rows, context, curve), method)
        _draw_law(ax, curve, drawing.look(method)["color"])
        classes = len(curve.cohort.classes)
        ax.axhline(1 / classes, color="0.45", linewidth=1, linestyle=":", label=f"chance, 1/{classes}", zorder=1)
        _people_axis(ax, curve)
        ax.set_title(f"{context.name(curve.cohort)}: {context.title(method)}", fontsize=9)
        ax.margins(y=0.08)
        ax.set_ylabel("balanced accuracy of held-out subjects, 95 %")
        ax.legend(frameon=False, fontsize=8, loc="best")
    return figure


def _draw_points(ax: Axes, rows: list[dict[str, Any]], method: str) -> None:
    style = drawing.look(method)
    for row in rows:
        n = row["training_subjects"]
        ax.plot(
            [n, n], [row["balanced_accuracy95_low"], row["balanced_accuracy95_high"]], color=style["color"], linewidth=2
        )
        ax.plot(
            n, row["balanced_accuracy"], markersize=7, linestyle="none", **style,
            label="mean over draws, 95 % over subjects" if row is rows[0] else None,
        )  # fmt: skip


def _drawn_curves(context: StudyContext, curves: Sequence[Curve]) -> dict[str, pd.DataFrame]:
    """What is drawn beside the points: the fitted curves and their bounds."""
    import pandas as pd

    tables = []
    for curve in curves:
        if curve.drawn is not None:
            columns = ("training_subjects", "fitted", "fitted95_low", "fitted95_high")
            table = pd.DataFrame(dict(zip(columns, curve.drawn, strict=True)))
            tables.append(table.assign(cohort=context.name(curve.cohort)))
    return {"fitted_curve": pd.concat(tables, ignore_index=True)} if tables else {}


def _draw_law(ax: Axes, curve: Curve, colour: str) -> None:
    if curve.drawn is None:
        return
    (n, value, low, high), last = curve.drawn, curve.points[-1].n
    for part, style, label in ((n <= last, "-", "fitted curve"), (n > last, "--", "today's value and expected gain")):
        ax.fill_between(n[part], low[part], high[part], color=colour, alpha=0.15, linewidth=0)
        ax.plot(n[part], value[part], color=colour, linewidth=1.2, linestyle=style, label=label)
    ax.axvspan(last, n[-1], color="0.94", linewidth=0, zorder=0, label="beyond the data")


def _people_axis(ax: Axes, curve: Curve) -> None:
    from matplotlib.ticker import NullLocator

    shown = [point.n for point in curve.points]
    if curve.forecast is not None:
        shown += [times * curve.points[-1].n for times in MULTIPLES]
    ax.set_xscale("log")
    ax.set_xticks(shown, [f"{n:.0f}" for n in shown])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(min(shown) / 1.1, max(shown) * 1.1)
    ax.set_xlabel("training subjects (log scale)")
