"""Does removing the effect of age from features leave age in them? AUROC of a diagnosis that depends on age alone.

Features of patients and controls are noise, or noise and a linear effect of age; patients are older by `gap` standard
deviations. Slopes are estimated on controls by least squares, or as `--adjust` does, shrunk towards zero. Errors of
the slopes are the same in training and test subjects and grow with age: .5 would be no trace of age.

python benchmarks/covariate_slopes.py
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bridgemil.models.harmonisation import Covariates, Floats

TEST, EFFECT, FACTORS = 400, 0.4, 5


def people(rng: np.random.Generator, n: int, loadings: Floats, gap: float, slopes: Floats) -> tuple[Floats, ...]:
    """Features of n people, half of them patients; who is one; their ages as standard scores."""
    patient = np.arange(n) % 2
    age = rng.normal(size=n) + gap * patient
    noise = (rng.normal(size=(n, len(slopes))) + rng.normal(size=(n, FACTORS)) @ loadings) / np.sqrt(2)
    return noise + np.outer(age, slopes), patient.astype(np.float64), age


def auroc(rng: np.random.Generator, n: int, features: int, gap: float, effect: float, how: str) -> float:
    """Of one simulated training and test set."""
    slopes = effect * rng.choice([-1.0, 1.0], features)
    loadings = rng.normal(size=(FACTORS, features)) / np.sqrt(FACTORS)
    x, patient, age = people(rng, n, loadings, gap, slopes)
    new, truth, ages = people(rng, TEST, loadings, gap, slopes)
    controls = np.flatnonzero(patient == 0)
    removed = np.zeros(features)
    if how == "least squares":
        removed = np.polyfit(age[controls], x[controls], 1)[0]
    elif how == "shrunk":
        rows: list[dict[str, Any]] = [{"age": age[i]} for i in controls]
        removed = Covariates.fit(rows, {"age": {}}, x[controls]).effect[0]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    model.fit(x - np.outer(age, removed), patient)
    return float(roc_auc_score(truth, model.decision_function(new - np.outer(ages, removed))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    arguments = parser.parse_args()
    repeats = 2 if arguments.quick else arguments.repeats
    methods = ("none", "least squares", "shrunk")
    print(f"controls  features  gap  effect   {'   '.join(methods)}")
    for n in (60, 200):
        for features in (40, 190):
            for gap, effect in ((0.5, 0.0), (1.5, 0.0), (1.5, EFFECT)):
                found = [
                    np.mean([auroc(np.random.default_rng(i), n, features, gap, effect, how) for i in range(repeats)])
                    for how in methods
                ]
                values = "".join(f"{value:>{len(name) + 3}.2f}" for value, name in zip(found, methods, strict=True))
                print(f"{n // 2:8}  {features:8}  {gap:3}  {effect:6}{values}")


if __name__ == "__main__":
    main()
