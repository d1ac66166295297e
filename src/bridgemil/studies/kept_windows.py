"""Which windows of the training subjects stay: those a model let in most, least, or some at random.

A gate ranks a subject's windows only if it comes from a model that held the subject out. Plain gates come from the
cross-validation itself, as in the paper; nested ones from folds that leave the round's test subjects out altogether.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold, FoldPlan
from bridgemil.errors import BadData, BadUse
from bridgemil.evaluation.results import Results

Gates = Mapping[str, NDArray[np.float64]]  # by subject, one a window
Rule = Literal["top", "bottom", "random", "all"]


class Choice(NamedTuple):
    """Which training windows are used.

    Parameters
    ----------
    gates
        ``plain`` or ``nested``; ``none`` where gates play no part.
    rule
        ``top``, ``bottom``, ``random`` or ``all``.
    k
        How many windows of each training subject; 0 for all.
    """

    gates: str
    rule: Rule
    k: int

    @property
    def words(self) -> str:
        """As tables name it: ``top 20``."""
        return f"{self.rule} {self.k}" if self.k else self.rule

    @property
    def part(self) -> str:
        """What its runs are called."""
        return f"{self.words} windows" + (", nested gates" if self.gates == "nested" else "")


ALL = Choice("none", "all", 0)


def choices(sizes: Sequence[int], nested: bool) -> list[Choice]:
    """All that are trained, ``ALL`` first.

    Parameters
    ----------
    sizes
        The values of K.
    nested
        Whether nested gates are used beside the plain ones.
    """
    kinds = ("plain", "nested") if nested else ("plain",)
    gated = [Choice(kind, rule, k) for kind in kinds for k in sizes for rule in _RANKED]
    return [ALL, *(Choice("none", "random", k) for k in sizes), *gated]


_RANKED: tuple[Rule, ...] = ("top", "bottom")


def mean_gates(results: Results, cohort: Cohort) -> dict[str, NDArray[np.float64]]:
    """The gates of every held-out subject, mean over seeds; one a window, in the order of the windows.

    Parameters
    ----------
    results
        Of a method that has gates.
    cohort
        What it was run on.
    """
    table = results.windows
    if "gate" not in table or table["gate"].isna().any():
        raise BadUse(f"{results.settings.title} gives windows no gates; there is nothing to rank them by")
    mean = table.groupby(["subject", "window"], sort=True)["gate"].mean()
    gates = {str(subject): rows.droplevel(0) for subject, rows in mean.groupby(level=0)}
    for subject, rows in gates.items():
        n = cohort.records[subject].n_windows
        if rows.index.tolist() != list(range(n)):
            raise BadData(
                f"{subject}: has {n} windows, but the runs of {results.settings.title} hold {len(rows)} gates"
            )
    if all(rows.nunique() == 1 for rows in gates.values()):
        raise BadUse(f"{results.settings.title} lets every window in alike; its gates rank nothing")
    return {subject: rows.to_numpy(dtype=np.float64) for subject, rows in gates.items()}


def inner_plan(split: FoldPlan, outer: Fold) -> FoldPlan:
    """The folds of a split without those of a round's test subjects.

    Parameters
    ----------
    split
        At least 4 folds: 3 must remain.
    outer
        One of its rounds.
    """
    if split.k < 4:
        raise BadUse(
            f"--nested: {split.k} folds are too few; without the test fold 3 must remain, so use --folds 4 or more"
        )
    return FoldPlan(tuple(fold for fold in split.folds if set(fold) != set(outer.test)))


def inner_rounds(rounds: Sequence[Fold], outer: Fold) -> list[Fold]:
    """Of the inner rounds, those that hold out training subjects of the outer round: no other gates are needed."""
    return [inner for inner in rounds if not set(inner.test) & set(outer.validation)]


def reduced(outer: Fold, choice: Choice, cohort: Cohort, gates: Gates, split_seed: int) -> Fold:
    """A round whose training subjects keep K windows each; validation and test subjects keep all.

    Parameters
    ----------
    outer
        The round, with all windows.
    choice
        Which windows stay; a subject with no more than K keeps all.
    cohort
        Whose windows they are.
    gates
        Of the training subjects; not looked at by ``random`` and ``all``.
    split_seed
        Of the split: random windows are drawn anew for each.
    """
    kept: dict[str, tuple[int, ...]] = {}
    for subject in outer.train:
        n = cohort.records[subject].n_windows
        if choice.k and n > choice.k:
            order = _order(choice, n, gates.get(subject), [choice.k, cohort.subjects.index(subject), split_seed])
            kept[subject] = tuple(sorted(order[: choice.k].tolist()))
    return replace(outer, kept=kept)


def _order(choice: Choice, n: int, gates: NDArray[np.float64] | None, seed: list[int]) -> NDArray[np.int64]:
    """A subject's windows, those to be kept first; of equal gates the earlier window."""
    if choice.rule == "random":
        return np.random.default_rng(seed).permutation(n)
    assert gates is not None
    return np.argsort(-gates if choice.rule == "top" else gates, kind="stable")


def evidence_share(rounds: Sequence[Fold], known: Mapping[str, NDArray[np.bool_]]) -> float | None:
    """The share of the kept training windows that hold evidence, mean over patients who have both kinds of windows.

    Parameters
    ----------
    rounds
        With the windows that are kept.
    known
        By patient, which of all its windows hold evidence.
    """
    shares: dict[str, list[float]] = {}
    for outer in rounds:
        for subject in outer.train:
            truth = known.get(subject, np.zeros(0, dtype=bool))
            if 0 < truth.sum() < len(truth):
                kept = truth[list(outer.kept[subject])] if subject in outer.kept else truth
                shares.setdefault(subject, []).append(float(kept.mean()))
    return float(np.mean([np.mean(values) for values in shares.values()])) if shares else None
