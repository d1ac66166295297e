"""The expected gain of more subjects: the same test subjects, predicted by models trained on fewer.

Test (and validation) subjects of every fold stay; its training subjects are thinned, each class in proportion. An
inverse power law, score(n) = a - b n^-c, is fitted to the balanced accuracies (as by Figueroa et al., 2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import methods
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold
from bridgemil.engine.plan import Experiment
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.metrics import resampled_means
from bridgemil.evaluation.results import Results
from bridgemil.report.figures import canvas, intervals, look
from bridgemil.studies.context import StudyContext
from bridgemil.studies.findings import Findings, correctness, prose, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Estimate = tuple[float, float, float]  # a value and its 95 % interval

DRAWS, STEPS, RESAMPLES = 3, 5, 300
LEAST_OF_A_CLASS = 2
MULTIPLES = (1.5, 2.0)  # of today's subjects, to forecast
LEAST_SIZES = 4  # three parameters go through any three points
RATES = np.geomspace(0.01, 2.0, 150)  # of c


# ------------------------------------------------------------------ the fitted curve and its forecast


@dataclass(frozen=True)
class PowerLaws:
    """Fits of score(n) = a - b n^-c with a <= 1 and b >= 0, one per row of scores."""

    ceiling: Floats  # a, (rows)
    gap: Floats  # the distance from the ceiling with ``largest`` subjects, b largest^-c, (rows)
    rate: Floats  # c, from 0.01 to 2, (rows)
    largest: float  # subjects

    def at(self, n: float | Floats) -> Floats:
        """The scores with n subjects: (rows), or (n, rows) for several n."""
        return np.asarray(self.ceiling - self.gap * (np.asarray(n)[..., None] / self.largest) ** -self.rate)

    def gain(self, n: float) -> Floats:
        """How much n subjects give more than the largest number tried, (rows)."""
        return np.asarray(self.at(n) - self.at(self.largest))


def fit(n: Floats, scores: Floats, weights: Floats) -> PowerLaws:
    """Fit a power law to each row of scores (rows, sizes) by weighted least squares: exact in a and b, c from a grid.

    All rows at once; ``scipy.optimize.curve_fit`` takes one at a time and can end in a local minimum of c.
    """
    share, largest = weights / weights.sum(), float(n.max())
    x = (n / largest) ** -RATES[:, None]  # rates x sizes
    centred = x - (x * share).sum(axis=1, keepdims=True)
    mean = (scores * share).sum(axis=1)
    gap = np.maximum(0, -(scores * share) @ centred.T / (share * centred**2).sum(axis=1))  # rows x rates
    ceiling = mean[:, None] + gap * (x * share).sum(axis=1)
    # Where the ceiling would be above 1 it is 1, and the gap is fitted alone.
    alone = np.maximum(0, ((1 - scores) * share) @ x.T / (share * x**2).sum(axis=1))
    gap, ceiling = np.where(ceiling > 1, alone, gap), np.minimum(ceiling, 1.0)
    errors = ((ceiling[:, :, None] - gap[:, :, None] * x - scores[:, None]) ** 2 * share).sum(axis=2)
    best, rows = errors.argmin(axis=1), np.arange(len(scores))
    return PowerLaws(ceiling[rows, best], gap[rows, best], RATES[best], largest)


@dataclass(frozen=True)
class Forecast:
    """A learning curve with the expected gain of more subjects. The first row is observed, the others resampled."""

    now: Floats  # the score with the largest number of subjects, (1 + resamples)
    laws: PowerLaws  # fitted to each row
    rise: Estimate  # the straight-line gain per doubling of subjects

    def gain(self, n: float) -> Estimate:
        """The expected gain of n subjects over today's."""
        return _estimate(self.laws.gain(n))

    def score(self, n: float) -> Estimate:
        """Today's score plus the expected gain; at most 1."""
        return _estimate(np.minimum(1, self.now + self.laws.gain(n)))

    def curve(self, smallest: float) -> Floats:
        """What is drawn, (4, points): subjects, value, bounds of its 95 %; the fit until today, then the forecast."""
        n = np.geomspace(smallest, self.laws.largest, 100)
        beyond = np.geomspace(self.laws.largest * (1 + 1e-9), MULTIPLES[-1] * self.laws.largest, 100)
        parts = [[_estimate(row) for row in self.laws.at(n)], [self.score(float(more)) for more in beyond]]
        return np.vstack([np.append(n, beyond), np.concatenate(parts).T])

    @property
    def fitted(self) -> dict[str, float]:
        """Columns: a, b and c of the curve, and the rise."""
        a, gap, c = (float(values[0]) for values in (self.laws.ceiling, self.laws.gap, self.laws.rate))
        return {"a": a, "b": gap * self.laws.largest**c, "c": c, **_columns("rise", self.rise)}

    def row(self, times: float) -> dict[str, float]:
        """Columns: the forecast with so many times today's subjects."""
        n = times * self.laws.largest
        gain, score = _columns("expected_gain", self.gain(n)), _columns("balanced_accuracy", self.score(n))
        return {"times": times, "training_subjects": n, **gain, **score}


def _columns(name: str, estimate: Estimate) -> dict[str, float]:
    return dict(zip((name, f"{name}95_low", f"{name}95_high"), estimate, strict=True))


def _estimate(values: Floats) -> Estimate:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return float(values[0]), float(low), float(high)


def forecast(n: Floats, observed: Floats, resampled: Floats, weights: Floats) -> Forecast | None:
    """Fit the curve to observed (sizes) and resampled (resamples, sizes) scores; None where too few sizes were tried.

    It forecasts whether or not the rise is significant: a forecast of significant rises only is biased upwards. A curve
    that does not rise has a gain of zero.
    """
    if len(n) < LEAST_SIZES:
        return None
    scores = np.vstack([observed, resampled])
    x = np.log2(n) - np.average(np.log2(n), weights=weights)
    rises = (scores * weights * x).sum(axis=1) / (weights * x**2).sum()
    return Forecast(scores[:, n.argmax()], fit(n, scores, weights), _estimate(rises))


def with_draws(resampled: Floats, draws: Sequence[Floats], rng: np.random.Generator) -> Floats:
    """Resampled scores (resamples, sizes) with the variance between draws of training subjects.

    The variance over draws, pooled over the sizes that have several, is added to each size as that of its mean;
    ``draws`` are the scores of each draw, by size.
    """
    freedom = sum(len(values) - 1 for values in draws)
    if not freedom:
        return resampled
    variance = sum(float(((values - values.mean()) ** 2).sum()) for values in draws) / freedom
    spread = np.sqrt(variance / np.array([len(values) for values in draws]))
    return np.asarray(resampled + rng.normal(size=resampled.shape) * spread)


def balanced(correct: Floats, labels: Sequence[str], resamples: int) -> tuple[Floats, Floats]:
    """Balanced accuracy (conditions), and that of subjects resampled within their class (resamples, conditions).

    ``correct`` (subjects, conditions) are shares of correct predictions; every condition has the same resamples.
    """
    names = np.asarray(labels)
    observed = np.mean([correct[names == name].mean(axis=0) for name in np.unique(names)], axis=0)
    return np.asarray(observed), resampled_means(correct, labels, resamples)


# ------------------------------------------------------------------ fewer training subjects


def drawn_order(subjects: Sequence[str], labels: Sequence[str], rng: np.random.Generator) -> list[str]:
    """All subjects in an order whose every beginning has the classes in proportion, and two of each at first."""
    places = []
    for name in sorted(set(labels)):
        mine = [subject for subject, label in zip(subjects, labels, strict=True) if label == name]
        for place, i in enumerate(rng.permutation(len(mine))):
            # Webster's rule: unlike rounding shares for each n, a larger n never loses a subject of a smaller one.
            later = place >= LEAST_OF_A_CLASS
            places.append((later, -len(mine) / (2 * place + 1) if later else place, mine[i]))
    return [subject for _, _, subject in sorted(places, key=lambda item: item[:2])]


def default_sizes(smallest: int, n_classes: int) -> list[int]:
    """About five steps of equal ratio, from ten subjects (four of each class, if more) to the smallest training set."""
    first = max(10, 4 * n_classes)
    steps = np.geomspace(first, max(first, smallest), STEPS).round().astype(int)
    return [int(n) for n in np.unique(steps) if n < smallest]


def sizes_of(context: StudyContext, cohort: Cohort, numbers: Sequence[int]) -> list[int]:
    """The sizes to try, the user's or the default ones; ``numbers`` are all training subjects of every fold."""
    smallest, least = min(numbers), LEAST_OF_A_CLASS * len(cohort.classes)
    chosen = context.option("sizes", None)
    if chosen is None:
        return default_sizes(smallest, len(cohort.classes))
    wrong = [str(n) for n in chosen if not least <= n <= smallest]
    if wrong:
        raise BadUse(
            f"--sizes {', '.join(wrong)}: {context.name(cohort)} has {smallest} subjects in its smallest training set; "
            f"give numbers from {least} ({LEAST_OF_A_CLASS} of each class) to {smallest}; all are always run too"
        )
    return sorted({int(n) for n in chosen if n < max(numbers)})


def fewer_subjects(
    context: StudyContext, cohort: Cohort, method: str, n: int | None, draw: int, split_seed: int
) -> Experiment:
    """The split with n training subjects in every fold (nested over n); None: with all."""
    split = context.split(cohort, split_seed)
    if n is None:
        return context.experiment(cohort, method, split)

    def thinned(fold: Fold) -> Fold:
        rng = np.random.default_rng([split_seed, draw, fold.number])
        chosen = set(drawn_order(fold.train, [cohort.records[s].label for s in fold.train], rng)[:n])
        return replace(fold, train=tuple(subject for subject in fold.train if subject in chosen))

    part = f"{n} training subjects, draw {draw + 1}"
    return context.experiment(cohort, method, split, part=part, drawn=lambda folds: list(map(thinned, folds)))


# ------------------------------------------------------------------ the study


@dataclass(frozen=True)
class Point:
    """One number of training subjects: the mean over folds where all are used."""

    n: float
    is_all: bool
    draws: list[list[Results]]  # one per split in each

    @property
    def results(self) -> list[Results]:
        """Of all draws."""
        return [result for draw in self.draws for result in draw]

    @property
    def title(self) -> str:
        """For tables and sentences."""
        return f"{'all ' if self.is_all else ''}{self.n:.0f} training subjects"


def perform(context: StudyContext) -> Findings:
    """Train on fewer and fewer subjects, fit the curve, and forecast the gain of more."""
    import pandas as pd

    method = context.option("method", methods.METHOD)
    runs: dict[tuple[str, str], list[Results]] = {}
    figure, axes = canvas(len(context.cohorts), width=5.8, height=4.2)
    tables: dict[str, list[dict[str, Any]]] = {"learning_curve": [], "fit": [], "forecast": []}
    sentences, curves = list[str](), list[pd.DataFrame]()
    for cohort, points, ax in zip(context.cohorts, _points(context, method), axes, strict=True):
        name, expected = context.name(cohort), _forecast(points)
        mine, curve = [{"cohort": name, **_row(point)} for point in points], None
        ahead = [{"cohort": name, **expected.row(times)} for times in MULTIPLES] if expected else []
        fitted = expected.fitted if expected else dict.fromkeys(("a", "b", "c", "rise", "rise95_low", "rise95_high"))
        tables["learning_curve"] += mine
        tables["forecast"] += ahead
        tables["fit"].append({"cohort": name, "curve": "a - b n^-c", **fitted})
        sentences += prose(
            "learning_curve_sentences", name=name, rows=mine, ahead=ahead, rise=expected and expected.rise,
            first=points[0].title, last=points[-1].title, least_sizes=LEAST_SIZES,
        )  # fmt: skip
        if expected is not None:
            curve = expected.curve(points[0].n)
            columns = ["training_subjects", "fitted", "fitted95_low", "fitted95_high"]
            curves.append(pd.DataFrame(curve.T, columns=columns).assign(cohort=name))
        _draw(ax, mine, curve, look(method), len(cohort.classes))
        ax.set_title(f"{name}: {context.title(method)}", fontsize=9)
        runs |= {(cohort.hash, f"{method}, {point.title}"): point.results for point in points}
    several = any(row["draws"] > 1 for row in tables["learning_curve"])
    return Findings(
        f"Learning curve of {context.title(method)}", sentences,
        {name: pd.DataFrame(table) for name, table in tables.items() if table}, {"learning_curve": figure},
        {"fitted_curve": pd.concat(curves, ignore_index=True)} if curves else {},
        prose("learning_curve_notes", several_draws=several), runs=runs,
    )  # fmt: skip


def _points(context: StudyContext, method: str) -> list[list[Point]]:
    """Run everything; of each cohort the points from few training subjects to all."""
    planned, numbers = list[tuple[tuple[str, int | None, int], Experiment]](), {}
    for cohort in context.cohorts:
        whole = [fewer_subjects(context, cohort, method, None, 0, seed) for seed in context.split_seeds]
        numbers[cohort.hash] = [len(fold.train) for experiment in whole for fold in experiment.cv_folds()]
        # Whole runs first: a part that equals one is that run.
        planned += [((cohort.hash, None, 0), experiment) for experiment in whole]
        planned += [
            ((cohort.hash, n, draw), fewer_subjects(context, cohort, method, n, draw, seed))
            for n in sizes_of(context, cohort, numbers[cohort.hash])
            for draw in range(context.option("draws", DRAWS))
            for seed in context.split_seeds
        ]
    draws: dict[str, dict[int | None, list[list[Results]]]] = {}
    for (of, n, _), results in context.run(planned).items():
        draws.setdefault(of, {}).setdefault(n, []).append(results)
    return [
        [
            *(Point(float(n), False, several) for n, several in own.items() if n is not None),
            Point(float(np.mean(numbers[of])), True, own[None]),
        ]
        for of, own in draws.items()
    ]


def _forecast(points: Sequence[Point]) -> Forecast | None:
    correct, draws, labels = [], [], correctness(points[0].results)["label"]
    for point in points:
        table, *each = (correctness(results) for results in (point.results, *point.draws))
        if not table["label"].equals(labels):
            raise BadData("the runs of a learning curve did not test the same subjects; delete them and run again")
        correct.append(table["correct"])
        draws.append(balanced(np.stack([one["correct"] for one in each], axis=1), labels.tolist(), 1)[0])
    observed, resampled = balanced(np.stack(correct, axis=1), labels.tolist(), RESAMPLES)
    resampled = with_draws(resampled, draws, np.random.default_rng(0))
    n, weights = np.array([(point.n, len(point.draws)) for point in points], dtype=np.float64).T
    return forecast(n, observed, resampled, weights)


def _row(point: Point) -> dict[str, Any]:
    each, subjects = [score(draw) for draw in point.draws], correctness(point.results)
    resampled = resampled_means(subjects["correct"].to_numpy(dtype=np.float64), subjects["label"].tolist())
    low, high = np.quantile(resampled, [0.025, 0.975])
    scores = [row["balanced_accuracy"] for row in each]
    return {
        "training_subjects": point.n, "all": point.is_all, "balanced_accuracy": float(np.mean(scores)),
        "balanced_accuracy95_low": float(low), "balanced_accuracy95_high": float(high),
        "sd": float(np.std(scores)) if len(each) > 1 else None, "draws": len(each),
        **{name: float(np.mean([row[name] for row in each])) for name in ("auroc", "accuracy")},
        "subjects": each[0]["subjects"],
    }  # fmt: skip


def _draw(ax: Axes, rows: list[dict[str, Any]], curve: Floats | None, style: dict[str, Any], n_classes: int) -> None:
    from matplotlib.ticker import NullLocator

    shown, colour = [row["training_subjects"] for row in rows], style["color"]
    keys = ("balanced_accuracy", "balanced_accuracy95_low", "balanced_accuracy95_high")
    intervals(ax, shown, rows, keys, markersize=7, label="mean over draws, 95 % over subjects", **style)
    if curve is not None:
        n, value, low, high = curve
        last = shown[-1]
        parts = ((n <= last, "-", "fitted curve"), (n > last, "--", "today's value and expected gain"))
        for part, line, label in parts:
            ax.fill_between(n[part], low[part], high[part], color=colour, alpha=0.15, linewidth=0)
            ax.plot(n[part], value[part], color=colour, linewidth=1.2, linestyle=line, label=label)
        ax.axvspan(last, n[-1], color="0.94", linewidth=0, zorder=0, label="extrapolated")
        shown += [times * last for times in MULTIPLES]
    ax.axhline(1 / n_classes, color="0.45", linewidth=1, linestyle=":", label=f"chance level, 1/{n_classes}", zorder=1)
    ax.set_xscale("log")
    ax.set_xticks(shown, [f"{n:.0f}" for n in shown])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set(xlim=(min(shown) / 1.1, max(shown) * 1.1), xlabel="training subjects (log scale)")
    ax.margins(y=0.08)
    ax.set_ylabel("balanced accuracy of held-out subjects, 95 %")
    ax.legend(frameon=False, fontsize=8, loc="best")
