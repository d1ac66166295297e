"""The results of an experiment: held-out predictions of every subject, and one row that sums them up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bridgemil.evaluation import metrics
from bridgemil.methods import Settings

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Results:
    """What ``evaluate`` returns."""

    settings: Settings
    classes: list[str]
    predictions: pd.DataFrame  # seed, fold, subject, label, predicted, p_<class>…
    curves: pd.DataFrame  # seed, fold, phase, epoch, loss, validation_accuracy, …
    runs: list[str]  # identities, in the store of ``out``
    seconds: float  # of computing, all runs together

    @property
    def folds(self) -> int:
        """The number of folds."""
        return int(self.predictions["fold"].nunique())

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return int(self.predictions["seed"].nunique())

    @property
    def labels(self) -> list[str]:
        """The diagnosis of each subject."""
        return self.predictions.drop_duplicates("subject")["label"].tolist()

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row: accuracy (mean and standard deviation over seeds), the other scores, intervals, settings."""
        import pandas as pd

        per_seed = [own for _, own in self.predictions.groupby("seed")]
        accuracy = [metrics.seed_accuracy(own) for own in per_seed]
        scores = pd.DataFrame([metrics.scores(own, self.classes) for own in per_seed]).mean()
        low, high = metrics.accuracy_interval(self.predictions)
        level, chance_low, chance_high = metrics.chance(self.labels)
        stage1 = self.settings.stage1
        aligned = stage1 is not None and stage1.objective == "alignment" and stage1.subbag
        pairs = stage1.subbag_pairs if stage1 is not None and aligned else None
        row = {
            "method": self.settings.method,
            "backbone": self.settings.backbone,
            "budget": self.settings.budget,
            "subbag_pairs": pairs,
            "accuracy": float(np.mean(accuracy)),
            "accuracy_std": float(np.std(accuracy)),
            **scores.to_dict(),
            "ci95_low": low,
            "ci95_high": high,
            "chance": level,
            "chance95_low": chance_low,
            "chance95_high": chance_high,
            "n_subjects": len(self.labels),
            "folds": self.folds,
            "seeds": self.seeds,
            "seconds": self.seconds,
            "settings_hash": self.settings.hash,
        }
        return pd.DataFrame([row])

    @property
    def confusion(self) -> pd.DataFrame:
        """Subjects by diagnosis (rows) and prediction (columns), mean over seeds."""
        import pandas as pd

        counts = pd.crosstab(self.predictions["label"], self.predictions["predicted"])
        return counts.reindex(index=self.classes, columns=self.classes, fill_value=0) / self.seeds

    def for_machines(self) -> dict[str, Any]:
        """The summary as JSON holds it."""
        row = self.summary.iloc[0].to_dict()
        return {
            "method": row["method"],
            "backbone": row["backbone"],
            "accuracy": {"mean": row["accuracy"], "std": row["accuracy_std"]},
            **{name: row[name] for name in ("balanced_accuracy", "macro_f1", "auroc", "mcc")},
            "ci95": [row["ci95_low"], row["ci95_high"]],
            "chance": row["chance"],
            "chance95": [row["chance95_low"], row["chance95_high"]],
            "confusion": {"classes": self.classes, "matrix": self.confusion.to_numpy().tolist()},
            **{name: int(row[name]) for name in ("n_subjects", "folds", "seeds")},
            "budget": row["budget"],
            "subbag_pairs": None if row["subbag_pairs"] is None else int(row["subbag_pairs"]),
            "settings": self.settings.model_dump(mode="json"),
            "settings_hash": row["settings_hash"],
            "seconds": row["seconds"],
        }
