"""How often the intervals of clinical metrics hold the truth, and whether operating points keep what they promise.

1. Coverage, exact: every outcome of a test with known sensitivity and specificity on n patients and n controls.
2. Operating points, simulated: a cross-validated classifier on Gaussian features; each fold's threshold is chosen on
   the held-out predictions of the other folds. Its true sensitivity and specificity are those of the fold's model and
   threshold on new subjects, mean over folds. The last column chooses the threshold on all held-out predictions, the
   judged ones included, as is often done: it is optimistic.

    python benchmarks/clinical_coverage.py [--quick]
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import binom, norm

from bridgemil.evaluation.diagnostic_accuracy import (
    OperatingPoint,
    Proportion,
    measures,
    predictive_values_at,
)

PREVALENCE = 0.1


def coverage(n: int, sensitivity: float, specificity: float) -> list[float]:
    """Exact coverage of the intervals of sensitivity, PPV, NPV, and of PPV and NPV at ``PREVALENCE``."""
    ppv = sensitivity / (sensitivity + 1 - specificity)
    npv = specificity / (specificity + 1 - sensitivity)
    a, b = PREVALENCE * sensitivity, (1 - PREVALENCE) * (1 - specificity)
    c, d = (1 - PREVALENCE) * specificity, PREVALENCE * (1 - sensitivity)
    truth = [sensitivity, ppv, npv, a / (a + b), c / (c + d)]
    held = np.zeros(len(truth))
    for true in range(n + 1):
        for false in range(n + 1):
            weight = binom.pmf(true, n, sensitivity) * binom.pmf(false, n, 1 - specificity)
            if weight < 1e-9:
                continue
            one, other = Proportion.of(true, n), Proportion.of(n - false, n)
            found = [one, Proportion.of(true, true + false), Proportion.of(n - false, 2 * n - true - false),
                     *predictive_values_at(PREVALENCE, one, other)]  # fmt: skip
            held += weight * np.array([f.low <= t <= f.high for f, t in zip(found, truth, strict=True)])
    return [float(value) for value in held]


def operating(n: int, k: int, point: OperatingPoint, repeats: int, rng: np.random.Generator) -> list[float]:
    """Sensitivity reported and true, interval holds it, it is lower; the same of specificity; gain of the naive sum."""
    d, effect = 10, 0.55
    found = []
    y, folds = np.repeat([True, False], n), np.tile(np.arange(k), 2 * n // k + 1)[: 2 * n]
    for _ in range(repeats):
        x = rng.normal(size=(2 * n, d)) + np.where(y, effect, 0.0)[:, None]
        p, models = np.empty(2 * n), []
        for fold in range(k):
            train = folds != fold
            w, bias = _lda(x[train], y[train])
            models.append((w, bias))
            p[~train] = 1 / (1 + np.exp(-(x[~train] @ w + bias)))
        chosen = point.cross_fitted(p, y, folds)
        estimates = list(measures(y, (p >= chosen).astype(float)).values())[:2]
        naive = list(measures(y, (p >= point.threshold(p, y)).astype(float)).values())[:2]
        truth = np.mean([_truth(*models[fold], chosen[folds == fold][0], effect) for fold in range(k)], axis=0)
        held = [(e.low <= t <= e.high, t < e.low) for e, t in zip(estimates, truth, strict=True)]
        found.append([estimates[0].value, truth[0], *held[0], estimates[1].value, truth[1], *held[1],
                      naive[0].value + naive[1].value - estimates[0].value - estimates[1].value])  # fmt: skip
    return [float(value) for value in np.mean(found, axis=0)]


def _lda(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    means = [x[y].mean(axis=0), x[~y].mean(axis=0)]
    centred = np.concatenate([x[y] - means[0], x[~y] - means[1]])
    w = np.linalg.solve(centred.T @ centred / (len(x) - 2) + 0.1 * np.eye(x.shape[1]), means[0] - means[1])
    return w, float(-w @ (means[0] + means[1]) / 2)


def _truth(w: np.ndarray, bias: float, threshold: float, effect: float) -> tuple[float, float]:
    if threshold <= 0 or threshold > 1:
        return (1.0, 0.0) if threshold <= 0 else (0.0, 1.0)
    spread, edge = np.linalg.norm(w), np.log(threshold / (1 - threshold)) - bias
    return float(norm.sf((edge - effect * w.sum()) / spread)), float(norm.cdf(edge / spread))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print("1. coverage of 95 % intervals, exact (n patients and n controls)")
    print(f"n    sens  spec   sensitivity  PPV    NPV    PPV at {PREVALENCE:g}  NPV at {PREVALENCE:g}")
    for n in (15,) if quick else (15, 30, 60):
        for one, other in ((0.7, 0.7), (0.9, 0.8), (0.8, 0.95)):
            held = coverage(n, one, other)
            print(
                f"{n:<4} {one:<5} {other:<5}  {held[0]:.3f}        " + "  ".join(f"{value:.3f}" for value in held[1:])
            )
    print("\n2. operating points, 10 folds: reported and true values (of new subjects), how often the interval holds")
    print("   the true value and how often that is lower; how much larger sensitivity + specificity are where the")
    print("   threshold is chosen on the judged subjects too")
    print("n    rule             sens   true   holds  lower  spec   true   holds  lower  naive")
    rng = np.random.default_rng(0)
    for n in (30,) if quick else (20, 30, 60):
        for text in ("argmax", "youden", "sensitivity=.9", "specificity=.9"):
            row = operating(n, 10, OperatingPoint.parse(text), 20 if quick else 500, rng)
            print(f"{n:<4} {text:<16} " + "  ".join(f"{v:.3f}" for v in row[:8]) + f"  {row[8]:+.3f}")


if __name__ == "__main__":
    main()
