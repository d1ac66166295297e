"""One run: fit on a fold's training subjects, predict its test subjects last, and write both down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

from bridgemil.cohort.cohort import Cohort
from bridgemil.cohort.folds import Fold
from bridgemil.cohort.sources import changed_from_preset
from bridgemil.cohort.views import Unlabelled, subset
from bridgemil.errors import BadData
from bridgemil.evaluation.tuning import choose
from bridgemil.methods import Settings
from bridgemil.models import Fit, Prediction, fit, predict_subject
from bridgemil.models.model import METADATA
from bridgemil.runs import RESULTS_VERSION, RunCache, RunStore, run_identity
from bridgemil.storage.files import write_json

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import torch

    from bridgemil.learning.loop import Watch


@dataclass(frozen=True)
class Run:
    """One fold of one seed."""

    cohort: Cohort  # holds everybody's windows
    fold: Fold  # who trains, selects and tests
    settings: Settings  # everything else that decides the result
    seed: int  # of weights, sampling and dropout
    split: Mapping[str, Any] | None = None  # what the fold is a part of, to write down: kind, k, split_seed, hash
    pretrain_on: Cohort | None = None  # a second cohort for Stage 1, where the settings name it

    def __post_init__(self) -> None:
        for first, second in combinations(("train", "validation", "test"), 2):
            if both := set(getattr(self.fold, first)) & set(getattr(self.fold, second)):
                raise BadData(f"a subject may not be in {first} and {second} both: {', '.join(sorted(both))}")
        seen = {self.cohort.records[subject].label for subject in self.fold.train}
        if absent := [name for name in self.cohort.classes if name not in seen]:
            raise BadData(f"fold {self.fold.number} has no training subject of class {', '.join(absent)}")

    @cached_property
    def used(self) -> Cohort:
        """The cohort, with those windows only that the fold uses."""
        return subset(self.cohort, self.fold.kept)

    @cached_property
    def unlabelled(self) -> Unlabelled | None:
        """The subjects of the second cohort, without those of this one."""
        return None if self.pretrain_on is None else Unlabelled.beside(self.cohort, self.pretrain_on)

    @property
    def identity(self) -> str:
        """The run's name on disk."""
        return run_identity(self.settings, self.cohort.hash, self.fold, self.seed)

    def perform(self, store: RunStore, device: torch.device, watch: Watch | None = None) -> str:
        """Do the run unless it is done, resuming from its checkpoint if there is one; returns its identity."""
        identity, fold = self.identity, self.fold
        if store.is_done(identity):
            return identity
        if store.run_folder(identity).exists():
            raise BadData(f"{store.run_folder(identity)}: is damaged (no manifest.json); delete it and run again")
        with store.lock(identity):
            if store.is_done(identity):  # another process has done it meanwhile
                return identity
            tuning = choose(self, store, device, watch) if self.settings.candidates else None
            settings = self.settings if tuning is None else self.settings.candidates[tuning["chosen"]][1]
            cache = RunCache.of_run(store, settings, self.cohort.hash, fold, self.seed)
            fitted = fit(
                self.used, fold.train, fold.validation, settings, self.seed,
                device=device, cache=cache, watch=watch, sites=fold.sites, rows=fold.rows,
                unlabelled=self.unlabelled,
            )  # fmt: skip
            # Only now are the test subjects' windows read.
            predictions = {
                who: predict_subject(fitted.model.for_subject(fold.rows.get(who, {})), self.used, who, cache)
                for who in fold.test
            }
            with store.writing("runs", identity) as folder:
                self._record(folder, fitted, predictions, device, tuning)
        return identity

    def _record(
        self,
        folder: Path,
        fitted: Fit,
        predictions: Mapping[str, Prediction],
        device: torch.device,
        tuning: Mapping[str, Any] | None,
    ) -> None:
        import pandas as pd

        if self.settings.address is None:
            fitted.model.write(folder, encoder=False)
        else:  # what a pipeline of the user's own has learnt is not kept
            write_json(folder / METADATA, fitted.model.facts.for_json())
        cohort, fold = self.cohort, self.fold
        columns = [f"p_{name}" for name in cohort.classes]
        rows = pd.DataFrame([
            {
                "seed": self.seed, "fold": fold.number, "subject": who, "label": cohort.records[who].label,
                "predicted": cohort.classes[own.predicted],
                **dict(zip(columns, map(float, own.probabilities), strict=True)),
            }
            for who, own in predictions.items()
        ])  # fmt: skip
        rows.to_parquet(folder / "predictions.parquet")
        windows = [self._window_rows(subject, prediction) for subject, prediction in predictions.items()]
        if len(windows[0].columns) > 3:
            pd.concat(windows, ignore_index=True).to_parquet(folder / "windows.parquet")
        if fitted.curve:
            pd.DataFrame(fitted.curve).to_parquet(folder / "curves.parquet")
        source, prepared = cohort.metadata["source"], cohort.metadata.get("settings", {})
        content: dict[str, Any] = {
            "settings": self.settings.model_dump(mode="json"),
            "settings_hash": self.settings.hash,
            "cohort": {
                "hash": cohort.hash,
                "path": str(cohort.path or ""),
                "source": source,
                "changed": changed_from_preset(source, prepared),
                "classes": cohort.classes,
                "n_subjects": len(cohort),
                "n_windows": cohort.n_windows,
                "burn_in": cohort.burn_in,
            },
            "seed": self.seed,
            "fold": fold.number,
            "split": None if self.split is None else dict(self.split),
            **{side: list(getattr(fold, side)) for side in ("train", "validation", "test")},
            "selected_epoch": fitted.selected_epoch,
            "accuracy": float((rows["label"] == rows["predicted"]).mean()),
            "seconds": fitted.seconds + (0.0 if tuning is None else tuning["seconds"]),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": device.type if self.settings.is_network else "cpu",
            "threads": fitted.threads,
            "results_version": RESULTS_VERSION,
            **fitted.model.facts.versions,
        }
        more: dict[str, Any] = {"bands_left_out": fitted.model.left_out, "tuning": tuning, "kept": fold.kept}
        if self.unlabelled is not None:
            more["pretrain_on"] = self.unlabelled.for_json()
        content |= {name: dict(value) for name, value in more.items() if value}
        if fold.rows:
            content |= {"sites": dict(fold.sites), "rows": dict(fold.rows)}
        write_json(folder / "run.json", content)

    def _window_rows(self, subject: str, prediction: Prediction) -> pd.DataFrame:
        """One row per window, with its values."""
        import pandas as pd

        starts = self.used.window_starts(subject)
        columns: dict[str, Any] = {"subject": subject, "window": self.used.window_numbers(subject), "second": starts}
        if prediction.gates is not None:
            columns["gate"] = prediction.gates
        for prefix, values in (("contribution", prediction.contributions), ("p", prediction.window_probabilities)):
            if values is not None:
                columns |= {f"{prefix}_{name}": values[:, k] for k, name in enumerate(self.cohort.classes)}
        return pd.DataFrame(columns)
