"""What adaptation to a site does to sensitivity and specificity where there is nothing to adapt to.

    python benchmarks/adaptation_bias.py [COHORT] [--external COHORT] [--quick]

Half of the subjects of COHORT (by default one minute of 65 subjects, in the package) train a model of eight folds; the
controls of the other half are the controls of a "new" site, which is the training site. Each subject is predicted by a
model adapted with the others: as trained; with features mapped to those of the training controls; with the log-odds
shifted as well, as `adapt` does; and shifted alone. Means over random halves. `--external`: a cohort of healthy
subjects of another site, for the specificity there.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from bridgemil import baselines
from bridgemil.baselines import Baseline
from bridgemil.bundle.adaptation import CERTAIN
from bridgemil.bundle.novelty import population
from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.prepare import prepare
from bridgemil.evaluation.calibration import log_odds
from bridgemil.models.harmonisation import location_scale, mapped

SHORT = Path(__file__).parents[1] / "src" / "bridgemil" / "recordings" / "adftd-60s"
CLASSES = {"A": "Alzheimer", "C": "healthy"}
CONTROL = "healthy"
METHODS, FOLDS = ("tangent", "bandpower"), 8
VARIANTS = ("as trained", "mapped", "mapped and shifted (`adapt`)", "shifted")
Array = np.ndarray


def left_out(values: Array, who: Array) -> Array:
    """Of each subject the mean of these subjects' values, without its own."""
    own = who.astype(float)
    mean: Array = (values[who].sum() - own * values) / (who.sum() - own)
    return mean


def variants(predict, target: float, training: Array, x: Array, who: Array) -> list[Array]:  # type: ignore[no-untyped-def]
    """Log-odds of the control class of each subject in each variant; ``who``: the site's controls."""
    plain = log_odds(np.clip(predict(x), 1 - CERTAIN, CERTAIN))
    others = [x[who & (np.arange(len(x)) != i)] for i in range(len(x))]
    here = np.stack([mapped(own, location_scale(rest, *training[:2])) for own, rest in zip(x, others, strict=True)])
    moved = log_odds(np.clip(predict(here), 1 - CERTAIN, CERTAIN))
    return [plain, moved, moved + target - left_out(moved, who), plain + target - left_out(plain, who)]


def half(
    baseline: Baseline, x: Array, control: Array, new: Array | None, train: Array, test: Array
) -> list[list[float]]:
    """Of one half: sensitivity, specificity, AUROC, and specificity at the other site, of each variant."""
    models, held = [], np.zeros(len(train))
    for fitting, out in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(train, control[train]):
        models.append(baseline.fit(x[train][fitting], control[train][fitting].astype(np.int64), 2, 0))
        held[out] = models[-1].probabilities(x[train][out])[:, 1]

    def predict(rows: Array) -> Array:
        p: Array = np.mean([one.probabilities(rows)[:, 1] for one in models], axis=0)
        return p

    target = float(log_odds(np.clip(held[control[train]], 1 - CERTAIN, CERTAIN)).mean())
    training = population(x[train], control[train])
    here = variants(predict, target, training, x[test], control[test])
    there = here if new is None else variants(predict, target, training, new, np.ones(len(new), bool))
    return [
        [np.mean(own[~control[test]] < 0), np.mean(own[control[test]] >= 0), roc_auc_score(control[test], own),
         np.nan if new is None else np.mean(other >= 0)]
        for own, other in zip(here, there, strict=True)
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cohort", type=Path, nargs="?")
    parser.add_argument("--external", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        how = {"label": "Group", "classes": CLASSES, "jobs": 1, "progress": False}
        cohort = Cohort.open(given.cohort) if given.cohort else prepare(SHORT, Path(folder) / "cohort", **how)
        other = None if given.external is None else Cohort.open(given.external)
        control = np.array(cohort.labels) == CONTROL
        print("| method | | sensitivity | specificity | AUROC | specificity elsewhere |\n|---|---|---|---|---|---|")
        for name in METHODS[-1:] if given.quick else METHODS:
            baseline = baselines.create(name, {}, cohort.signal)
            x, new = (
                None if one is None else np.stack([baseline.features(one.windows(who)) for who in one.subjects])
                for one in (cohort, other)
            )
            halves = StratifiedShuffleSplit(2 if given.quick else 30, test_size=0.5, random_state=0).split(x, control)
            rows = np.mean([half(baseline, x, control, new, *pair) for pair in halves], axis=0)
            for title, values in zip(VARIANTS, rows, strict=True):
                shown = " | ".join("-" if np.isnan(value) else f"{value:.2f}" for value in values)
                print(f"| {name} | {title} | {shown} |")


if __name__ == "__main__":
    main()
