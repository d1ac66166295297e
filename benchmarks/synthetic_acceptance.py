"""Are the synthetic cohort's defaults fair? Two numbers over five seeds, and nothing else, decided them.

- Logistic regression on the true evidence fraction: the truth must tell the classes apart (AUROC >= .95).
- Band power, the field's simple baseline: the task must be neither trivial nor impossible for it (AUROC .60-.80).

Both by subject-level 5-fold cross-validation, out-of-fold scores pooled.  python benchmarks/synthetic_acceptance.py
"""

from __future__ import annotations

import argparse

import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from bridgemil.baselines.bandpower import classifier, features
from bridgemil.cohort.synthetic import SynthSettings, simulate


def person(settings: SynthSettings, index: int) -> tuple[str, float, np.ndarray]:
    one = simulate(settings, index)
    n_windows = settings.seconds
    bag = one.signal.reshape(len(one.signal), n_windows, settings.sfreq).transpose(1, 0, 2)
    return one.label, one.evidence_fraction, features(bag.astype(np.float32), settings.sfreq)


def acceptance(settings: SynthSettings, jobs: int = 2) -> tuple[float, float, dict[str, tuple[float, float]]]:
    people = Parallel(n_jobs=jobs)(delayed(person)(settings, i) for i in range(settings.subjects))
    patient = np.array([label != "control" for label, _, _ in people])
    fraction = np.array([f for _, f, _ in people])
    folds = StratifiedKFold(5, shuffle=True, random_state=0)

    def auroc(model: object, values: np.ndarray) -> float:
        scores = cross_val_predict(model, values, patient, cv=folds, method="decision_function")
        return float(roc_auc_score(patient, scores))

    spans = {
        name: (float(fraction[chosen].min()), float(fraction[chosen].max()))
        for name, chosen in (("patients", patient), ("controls", ~patient))
    }
    truth = auroc(LogisticRegression(C=100.0), fraction[:, None])
    return truth, auroc(classifier(), np.stack([f for _, _, f in people])), spans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evidence", choices=["state", "burst"], default="state")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--strength", type=float)
    arguments = parser.parse_args()
    print(f"evidence {arguments.evidence}: seed, AUROC of the true fraction, AUROC of band power, evidence windows")
    powers = []
    for seed in arguments.seeds:
        extra = {"strength": arguments.strength, "burst_strength": arguments.strength} if arguments.strength else {}
        truth, power, spans = acceptance(SynthSettings(seed=seed, evidence=arguments.evidence, **extra))
        powers.append(power)
        words = ", ".join(f"{name} {low:.0%}-{high:.0%}" for name, (low, high) in spans.items())
        print(f"  seed {seed}: {truth:.3f}  {power:.3f}  {words}")
    print(f"band power over seeds: mean {np.mean(powers):.3f}, {min(powers):.3f}-{max(powers):.3f}")


if __name__ == "__main__":
    main()
