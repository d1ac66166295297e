"""Are the synthetic cohort's defaults fair? Two numbers over five seeds, and nothing else, decided them.

- Logistic regression on the true evidence fraction: the truth must tell the classes apart (AUROC >= .95).
- Band power, the field's simple baseline: the task must be neither trivial nor impossible for it (mean AUROC .65-.78).

Where the disease is a ``trait`` there is no fraction; there band power must be about as good as it is at telling
Alzheimer's disease from health in real recordings (mean AUROC .80-.90).

Both by subject-level 5-fold cross-validation, out-of-fold scores pooled.  python benchmarks/synthetic_acceptance.py
"""

from __future__ import annotations

import argparse

import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bridgemil.baselines.bandpower import BandPower
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.synthetic import SynthSettings, simulate


def person(settings: SynthSettings, index: int) -> tuple[str, float, np.ndarray]:
    simulated = simulate(settings, index)
    signal = simulated.signal
    bag = signal.reshape(len(signal), settings.seconds, settings.sfreq).transpose(1, 0, 2)
    channels = tuple(map(str, range(len(signal))))
    baseline = BandPower(BandPower.Settings(), Signal(channels, settings.sfreq, settings.sfreq))
    values = baseline.features(bag.astype(np.float32))
    return simulated.label, float(simulated.evidence.mean()), values


def acceptance(settings: SynthSettings, jobs: int = 2) -> tuple[float | None, float, dict[str, tuple[float, float]]]:
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
    band_power = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=5000))  # as the baseline has it
    known = settings.evidence != "trait"
    truth = auroc(LogisticRegression(C=100.0), fraction[:, None]) if known else None
    return truth, auroc(band_power, np.stack([f for _, _, f in people])), spans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evidence", choices=["state", "burst", "trait"], default="state")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--strength", type=float, help="of that kind of evidence; none: the accepted one")
    parser.add_argument("--common-uv", type=float, help="what all electrodes share, in microvolt")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a few seconds: does it still run?")
    arguments = parser.parse_args()
    kind, extra = arguments.evidence, {}
    if arguments.quick:
        arguments.seeds, arguments.jobs, extra = [0], 1, {"subjects": 10, "seconds": 60}
    if arguments.strength:
        extra[{"state": "strength", "burst": "burst_strength", "trait": "trait_strength"}[kind]] = arguments.strength
    if arguments.common_uv is not None:
        extra["common_uv"] = arguments.common_uv
    print(f"evidence {kind}: seed, AUROC of the true fraction, of band power, evidence")
    powers = []
    for seed in arguments.seeds:
        settings = SynthSettings(seed=seed, evidence=kind, **extra)
        truth, power, spans = acceptance(settings, arguments.jobs)
        powers.append(power)
        words = ", ".join(f"{name} {low:.0%}-{high:.0%}" for name, (low, high) in spans.items())
        if truth is None:
            print(f"  seed {seed}: (none)  {power:.3f}  a shifted background, no special windows")
        else:
            print(f"  seed {seed}: {truth:.3f}  {power:.3f}  {words}")
    print(f"band power over seeds: mean {np.mean(powers):.3f}, {min(powers):.3f}-{max(powers):.3f}")


if __name__ == "__main__":
    main()
