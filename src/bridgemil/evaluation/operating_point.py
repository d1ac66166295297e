"""The operating point of a two-class model: the probability from which on a subject is called positive.

The threshold applied to a fold is chosen on the held-out predictions of the other folds (cross-fitting, as for
calibration): it does not depend on the fold's diagnoses, given those predictions. The models behind them had the fold's
subjects among their training subjects; a threshold on predictions nested inside each training set would need k times
the runs. ``benchmarks/clinical_coverage.py`` measures that the sensitivity reached
on held-out subjects is not below the one asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from bridgemil.errors import BadData, BadUse

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rule = Literal["argmax", "youden", "sensitivity", "specificity"]
RULES = "argmax, youden, sensitivity=VALUE or specificity=VALUE, such as sensitivity=.9"


@dataclass(frozen=True)
class OperatingPoint:
    """How the threshold is chosen.

    Parameters
    ----------
    rule
        ``argmax``: no threshold, the class that the method predicts (of two classes, from .5 on). ``youden``: the
        largest sensitivity + specificity - 1 (Youden, 1950). ``sensitivity``, ``specificity``: the stated value is
        reached at the least cost to the other one.
    target : float, optional
        Of ``sensitivity`` and ``specificity``, above 0 and below 1.
    """

    rule: Rule = "argmax"
    target: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """``sensitivity=.9`` and the like, as the command line and ``evaluate`` take it."""
        name, equals, value = (part.strip() for part in text.lower().partition("="))
        if name not in get_args(Rule) or bool(equals) != (name in ("sensitivity", "specificity")):
            raise BadUse(f"operating point {text!r}: expected {RULES}")
        if not equals:
            return cls(name)  # type: ignore[arg-type]
        try:
            target = float(value)
        except ValueError:
            raise BadUse(f"operating point {text!r}: {value!r} is not a number; expected {RULES}") from None
        if not 0 < target < 1:
            raise BadUse(f"operating point {text!r}: the {name} must lie between 0 and 1, for example {name}=.9")
        return cls(name, target)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.rule if self.target is None else f"{self.rule}={self.target:g}"

    @property
    def sentence(self) -> str:
        """How subjects are called positive, for a methods section."""
        if self.rule == "argmax":
            return "A subject is positive where that class is predicted; no threshold was chosen."
        aim = "for the largest Youden index" if self.target is None else f"for a {self.rule} of {100 * self.target:g} %"
        return (
            f"The threshold of a fold was chosen {aim} on the held-out predictions of the other folds only "
            "(cross-fitted; the models of the other folds have trained on its subjects)."
        )

    def threshold(self, p: Floats, y: Bools) -> float:
        """The threshold these subjects give: positive is who has at least this probability.

        A stated sensitivity is reached as in split conformal prediction (Vovk et al., 2005): with n patients the
        threshold is the ceil(s (n + 1))-th largest of their probabilities, so that a further patient lies at or above
        it with probability s or more. The plain quantile would give ceil(s n) / (n + 1), less than asked for. With too
        few patients for that (s > n / (n + 1)) everyone is positive; likewise for specificity.

        Parameters
        ----------
        p : shape (n,)
            Probability of the positive class.
        y : shape (n,)
            Whether the subject has it.

        Returns
        -------
        float
            Between 0 (everyone is positive) and just above 1 (nobody is).
        """
        if not y.any() or y.all():
            raise BadData("the operating point needs subjects of both classes in the other folds")
        if self.rule == "argmax":
            return 0.5
        if self.rule == "youden":
            return _youden(p, y)
        assert self.target is not None
        own = np.sort(p[y] if self.rule == "sensitivity" else p[~y])
        rank = math.ceil(round(self.target * (len(own) + 1), 9))
        if self.rule == "sensitivity":
            return float(own[-rank]) if rank <= len(own) else 0.0
        return float(np.nextafter(own[rank - 1] if rank <= len(own) else 1.0, 2))

    def cross_fitted(self, p: Floats, y: Bools, folds: NDArray[np.int64]) -> Floats:
        """The threshold of each subject, chosen on the subjects of the other folds.

        Parameters
        ----------
        p : shape (n,)
            Held-out probability of the positive class.
        y : shape (n,)
            Whether the subject has it.
        folds : shape (n,)
            The fold that held the subject out.

        Returns
        -------
        ndarray of shape (n,)
            The same for all subjects of one fold.
        """
        thresholds = np.empty(len(p))
        for fold in np.unique(folds):
            here = folds == fold
            thresholds[here] = self.threshold(p[~here], y[~here])
        return thresholds


ARGMAX = OperatingPoint()


def _youden(p: Floats, y: Bools) -> float:
    """Halfway between two neighbouring probabilities; of equally good thresholds the one nearest to .5."""
    values = np.unique(p)
    candidates = np.concatenate([[0.0], (values[1:] + values[:-1]) / 2, [np.nextafter(1.0, 2)]])
    positive = p[:, None] >= candidates  # n x thresholds
    index = positive[y].mean(axis=0) - positive[~y].mean(axis=0)
    best = candidates[index >= index.max() - 1e-12]
    return float(best[np.abs(best - 0.5).argmin()])
