"""The one comparison of two methods: the difference on the same subjects, its interval, and the one test.

Every verdict between methods (``evaluate``, ``report``, ``results.compare``, the studies) comes from ``compare``. Its
type I error and the coverage of its interval are measured by ``benchmarks/null_simulation.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]

LEVEL = 0.05
RESAMPLES = 10_000
Z = 1.959964  # 97.5 % quantile of the normal distribution
TEST = "max of sign-flip and corrected resampled t-test"  # printed beside p
ONE_FOLD = "sign-flip; one tested fold"  # whose variance over folds is not known
SCORE_INTERVALS = (  # what every table with scores and verdicts says
    "Accuracy is pooled over held-out subjects. 95 %: Wilson interval over subjects; intervals do not include "
    "retraining variance."
)
COMPARED = (  # what every table of comparisons says
    "Differences: pooled accuracy on the same subjects, paired. p: the larger of a sign-flip test over subjects and a "
    "corrected resampled t-test over folds x splits (Nadeau and Bengio 2003). Their intervals agree with p and include "
    "retraining variance, except with one tested fold, where p is of the sign-flip test alone."
)
FINEST = 1000  # parts of one that gains are multiples of, for an exact test
NO_VARIANCE = 1e-12  # of accuracies: nothing but rounding


@dataclass(frozen=True)
class Comparison:
    """One method against another on the same subjects.

    ``p`` is of this pair alone and so is ``sentence``: a pair has one sentence, wherever it is printed. Where several
    pairs are printed together, ``p_holm`` is corrected for all of them and decides.
    """

    one: str
    other: str
    difference: float  # accuracy of ``one`` minus that of ``other``, pooled over subjects; a share, not points
    low: float  # 95 %; excludes zero only where p < .05
    high: float
    p: float
    p_holm: float
    seeds: int
    splits: int = 1
    family: int = 1  # how many comparisons p_holm is corrected for
    test: str = TEST

    @property
    def significant(self) -> bool:
        """Whether the Holm-corrected p is below .05; with one comparison, whether p is."""
        return self.p_holm < LEVEL

    @property
    def ahead(self) -> tuple[str, str]:
        """The more accurate method and the other; by name where they are equal."""
        if self.difference == 0:
            first, second = sorted((self.one, self.other))
            return first, second
        return (self.one, self.other) if self.difference > 0 else (self.other, self.one)

    @property
    def sentence(self) -> str:
        """What this pair alone shows; the same for either order of the two."""
        return self._sentence(self.p < LEVEL)

    @property
    def corrected_sentence(self) -> str:
        """The sentence, with the Holm-corrected p where the pair is one of several and significant alone."""
        if self.family == 1 or self.p >= LEVEL:
            return self.sentence
        return self._sentence(self.significant, f"; Holm-corrected {p_text(self.p_holm)} for {self.family} comparisons")

    def _sentence(self, significant: bool, corrected: str = "") -> str:
        first, second = self.ahead
        low, high = (self.low, self.high) if first == self.one else (-self.high, -self.low)
        tried = f"{counted(self.seeds, 'seed')}, {counted(self.splits, 'split')}"
        evidence = (
            f"{points(abs(self.difference))} points, 95 % {points(low)} to {points(high)}; "
            f"{p_text(self.p)}{corrected}, {self.test}; {tried}"
        )
        if significant:
            return f"{first} is more accurate than {second} ({evidence})."
        return f"No significant difference between {first} and {second} ({evidence})."

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.corrected_sentence)}</p>"

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it; differences as shares, not points."""
        return {
            "difference": self.difference, "ci95": [self.low, self.high], "p": self.p, "p_holm": self.p_holm,
            "comparisons": self.family, "test": self.test, "seeds": self.seeds, "splits": self.splits,
            "sentence": self.sentence,
        }  # fmt: skip


def points(gain: float) -> str:
    """A difference of accuracies in points, with its sign; what rounds to nothing has a plus."""
    return f"{round(100 * gain, 1) + 0.0:+.1f}"


def p_text(value: float) -> str:
    """A p-value as it is printed: ``p = .031``."""
    return "p < .001" if value < 0.001 else f"p = {value:.3f}".replace("0.", ".", 1)


def counted(number: int, thing: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def compare(one: pd.DataFrame, other: pd.DataFrame, names: tuple[str, str], test_to_train: float) -> Comparison:
    """Compare two methods' held-out predictions (``seed, fold, subject, label, predicted``) of the same subjects.

    Where there are several splits, ``split`` names them; both have the same seeds and subjects of each. Folds are those
    of ``one``. ``test_to_train`` is the number of test subjects of a fold over that of its training subjects.
    """
    keys = ["split", "seed", "subject"]
    mine, theirs = (
        table.assign(split=table.get("split", 0), correct=(table["label"] == table["predicted"]).astype(float))
        .set_index(keys)
        .sort_index()
        for table in (one, other)
    )
    if not mine.index.equals(theirs.index):
        raise ValueError(f"{names[0]} and {names[1]} were not run on the same seeds and subjects")
    # All seeds of a split share its folds: they are no further resamples, and a subject's gain is its mean over them.
    gains = mine[["fold"]].assign(gain=mine["correct"] - theirs["correct"]).groupby(["split", "subject"])
    rows = gains.agg(fold=("fold", "first"), gain=("gain", "mean")).reset_index()
    subjects = rows["subject"].factorize()[0]
    folds = rows.groupby(["split", "fold"]).ngroup().to_numpy()
    found = paired_test(rows["gain"].to_numpy(dtype=np.float64), subjects, folds, test_to_train)
    seeds, splits = (int(mine.index.get_level_values(name).nunique()) for name in ("seed", "split"))
    test = TEST if folds.any() else ONE_FOLD
    return Comparison(*names, *found, p_holm=found[-1], seeds=seeds, splits=splits, test=test)


def corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with their Holm-corrected p, all of them as one family."""
    adjusted = holm([one.p for one in family])
    return [replace(one, p_holm=p, family=len(family)) for one, p in zip(family, adjusted, strict=True)]


def paired_test(gain: Floats, subjects: Ints, folds: Ints, test_to_train: float) -> tuple[float, float, float, float]:
    """The difference over all splits, the two ends of its 95 % interval, and p.

    p is the larger of two tests. The sign-flip test over subjects (a subject's gain is its mean over splits) holds the
    models fixed. Nadeau and Bengio's (2003) corrected resampled t-test over folds x splits accounts for training sets
    that overlap, and alone is far too sure where a fold holds few subjects. The interval is the wider of
    the t-test's and ``adjusted_interval`` over subjects, and reaches zero where p is .05 or more: it agrees with the
    verdict, and like it includes retraining variance. With one fold there is no t-test and none of that variance.

    One row per subject and split: ``gain``, the correctness of the first method minus that of the second, and codes of
    the subject and of the fold of the split, from 0. ``test_to_train`` as of ``compare``.
    """
    from scipy.special import stdtr, stdtrit

    own = np.bincount(subjects, gain) / np.bincount(subjects)
    difference = float(np.round(own.mean(), 12)) + 0.0
    error, freedom = _corrected_error(gain, folds, difference, test_to_train)
    # Where folds do not vary, the sign-flip test decides.
    p = max(sign_flip_test(own), 0.0 if error == 0 else float(2 * stdtr(freedom, -abs(difference) / error)))
    low, high = adjusted_interval(own)
    half = float(stdtrit(freedom, 1 - LEVEL / 2)) * error
    low, high = min(low, difference - half), max(high, difference + half)
    if p >= LEVEL:
        low, high = min(low, 0.0), max(high, 0.0)
    return difference, max(-1.0, low), min(1.0, high), p


def _corrected_error(gain: Floats, folds: Ints, difference: float, test_to_train: float) -> tuple[float, int]:
    """The standard error of the difference, and its degrees of freedom.

    The variance over folds, each weighted by its subjects, times 1 / folds + n_test / n_train.
    """
    sizes = np.bincount(folds)
    n = len(sizes)
    if n < 2:
        return 0.0, 1
    deviations = np.bincount(folds, gain) / sizes - difference
    variance = float((sizes / sizes.sum() * deviations**2).sum()) * n / (n - 1)
    return math.sqrt((1 / n + test_to_train) * variance) if variance > NO_VARIANCE else 0.0, n - 1


def sign_flip_test(gains: Floats) -> float:
    """Two-sided p of the mean gain, were each subject's gain as likely to have the other sign.

    Exact where the gains (one per subject, mean over seeds and splits) are multiples of 1/1000 or more (seeds times
    splits of common numbers), else by random signs.
    """
    sizes, counts = np.unique(np.round(np.abs(gains[gains != 0]), 12), return_counts=True)
    observed = abs(float(gains.sum())) - 1e-9
    unit = math.lcm(*(Fraction(size).limit_denominator(FINEST).denominator for size in sizes.tolist()))
    if unit <= FINEST:
        sums, shares = _signed_sums(np.rint(sizes * unit).astype(int).tolist(), counts.tolist())
        return min(1.0, float(shares[np.abs(sums) >= observed * unit].sum()))
    drawn = np.random.default_rng(0).binomial(counts, 0.5, (RESAMPLES, len(counts)))
    as_large = np.abs((2.0 * drawn - counts) @ sizes) >= observed
    return float((1 + as_large.sum()) / (1 + RESAMPLES))


def _signed_sums(steps: Sequence[int], counts: Sequence[int]) -> tuple[Ints, Floats]:
    """All sums of whole numbers with random signs, and their probabilities; each step occurs count times."""
    from scipy.signal import convolve
    from scipy.stats import binom

    shares = np.ones(1)
    for step, count in zip(steps, counts, strict=True):
        own = np.zeros(2 * step * count + 1)  # of count random signs, as many are positive as in a binomial draw
        own[:: 2 * step] = binom.pmf(np.arange(count + 1), count, 0.5)
        shares = convolve(shares, own)
    return np.arange(len(shares)) - len(shares) // 2, shares


def adjusted_interval(gains: Floats) -> tuple[float, float]:
    """A 95 % interval of the mean gain over subjects, the models as they are (Bonett and Price 2012).

    A Wald interval with one more subject in favour of either method: it keeps a width where few or no subjects differ.
    """
    more = np.append(gains, [1.0, -1.0])
    half = Z * float(np.std(more)) / math.sqrt(len(more))
    return float(more.mean()) - half, float(more.mean()) + half


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p-values that may be read as one family."""
    order, n = np.argsort(values), len(values)
    adjusted = np.empty(n)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate((n - np.arange(n)) * np.asarray(values)[order]))
    return [float(value) for value in adjusted]
