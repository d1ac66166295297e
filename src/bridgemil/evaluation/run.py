"""One run: train on a fold's training subjects, select on its validation subjects, and look at the test ones last."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from bridgemil.cohort.folds import Round
from bridgemil.cohort.settings import changed_from_preset
from bridgemil.cohort.store import Cohort
from bridgemil.cohort.writing import write_json
from bridgemil.errors import BadData, BadUse
from bridgemil.learning.settings import BandPowerSettings
from bridgemil.methods import Settings
from bridgemil.runs import RunStore, run_identity, stage1_identity, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import Tensor

    from bridgemil.learning.fitting import Here
    from bridgemil.learning.loop import Curve, Watch
    from bridgemil.learning.window_set import WindowSet


@dataclass
class Outcome:
    """What a run leaves."""

    predicted: list[int]  # a class a test subject
    probabilities: list[list[float]]  # a row a test subject
    windows: dict[str, Tensor] = field(default_factory=dict)  # per test subject: gates, or window probabilities
    weights: dict[str, Tensor] = field(default_factory=dict)
    curve: Curve = field(default_factory=list)
    selected_epoch: int | None = None
    scale: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # mean and deviation of the training fold
    seconds: float = 0.0  # of training, over all resumes, Stage 1 included wherever it was trained


def device_of(name: str) -> torch.device:
    """``auto``, ``cpu`` or ``cuda`` (also ``cuda:1``) as a device that is there."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise BadUse(f"device must be auto, cpu or cuda, got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadUse("device cuda: torch sees no CUDA device here; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadUse(f"device {name}: there are only {torch.cuda.device_count()} CUDA devices here")
    return device


@dataclass(frozen=True)
class Run:
    """One fold of one seed."""

    cohort: Cohort
    subjects: Round
    settings: Settings
    seed: int

    def __post_init__(self) -> None:
        for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
            both = set(getattr(self.subjects, one)) & set(getattr(self.subjects, other))
            if both:
                raise BadData(f"a subject may not be in {one} and {other} both: {', '.join(sorted(both))}")
        seen = {self.cohort.records[subject].label for subject in self.subjects.train}
        absent = [name for name in self.cohort.classes if name not in seen]
        if absent:
            raise BadData(f"fold {self.subjects.fold + 1} has no training subject of class {', '.join(absent)}")

    @property
    def identity(self) -> str:
        """The run's name on disk."""
        return run_identity(self.settings, self.cohort.hash, self.subjects, self.seed)

    def perform(self, store: RunStore, device: torch.device, watch: Watch | None = None) -> str:
        """Do the run unless it is done, going on from its checkpoint if there is one; returns its identity."""
        identity = self.identity
        if not store.is_done(identity):
            if store.run(identity).exists() and not store.is_done(identity):
                raise BadData(f"{store.run(identity)}: is damaged (no run.json); delete it and run again")
            with store.lock(identity):
                if not store.is_done(identity):  # another process may have done it meanwhile
                    self._perform(store, identity, device, watch)
        return identity

    def _perform(self, store: RunStore, identity: str, device: torch.device, watch: Watch | None) -> None:
        if isinstance(self.settings.stage2, BandPowerSettings):
            outcome, threads = self._bandpower(self.settings.stage2), 1
        else:
            import torch

            outcome, threads = self._network(store, identity, device, watch), torch.get_num_threads()
        about = {"seconds": outcome.seconds, "device": device.type, "threads": threads}
        with store.writing(store.run(identity)) as folder:
            self._write(folder, outcome, about)

    def _network(self, store: RunStore, identity: str, device: torch.device, watch: Watch | None) -> Outcome:
        import torch

        from bridgemil.learning.fitting import Here, fit, new_encoder, predict
        from bridgemil.learning.streams import Streams
        from bridgemil.learning.window_set import WindowSet

        ids = sorted(self.subjects.train)
        scale = self.cohort.normalisation(ids)
        training = WindowSet.load(self.cohort, ids, scale)
        validation = WindowSet.load(self.cohort, sorted(self.subjects.validation), scale)
        here = Here(Streams.of(self.seed, ids), device, watch)
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # the caller's random numbers are the caller's
            encoder = new_encoder(self.settings.backbone, self.settings.backbone_options, training, here)
            before, seconds = self._stage1(encoder, training, store, here)
            assert not isinstance(self.settings.stage2, BandPowerSettings)
            model, trained = fit(
                encoder, self.settings.backbone, training, validation, self.settings.stage2, here,
                store.checkpoint(identity), pretrained=self.settings.stage1 is not None,
            )  # fmt: skip
        # Only now are the test subjects' windows read.
        test = WindowSet.load(self.cohort, self.subjects.test, scale)
        found = [predict(model, test.bag(i), device) for i in range(len(test.subjects))]
        return Outcome(
            [one.predicted for one in found],
            [one.probabilities.tolist() for one in found],
            {subject: one.windows for subject, one in zip(test.subjects, found, strict=True)},
            {name: value.cpu() for name, value in model.state_dict().items()},
            before + trained.curve,
            trained.epoch,
            (tuple(scale[0].tolist()), tuple(scale[1].tolist())),
            seconds + trained.seconds,
        )

    def _stage1(
        self, encoder: torch.nn.Module, training: WindowSet, store: RunStore, here: Here
    ) -> tuple[Curve, float]:
        """Load the Stage 1 encoder from the store, training it first if nobody has; its curve and seconds."""
        from bridgemil.learning import checkpoint
        from bridgemil.learning.fitting import pretrain

        if self.settings.stage1 is None:
            return [], 0.0
        identity = stage1_identity(self.settings, self.cohort.hash, self.subjects, self.seed)
        file = store.stage1(identity) / "encoder.safetensors"
        with store.lock(identity):
            if not file.is_file():
                keep = store.checkpoint(identity)
                trained = pretrain(encoder, self.settings.backbone, training, self.settings.stage1, here, keep)
                note = {
                    "settings": self.settings.stage1.model_dump(),
                    "backbone": self.settings.backbone,
                    "curve": trained.curve,
                    "seconds": trained.seconds,
                    "seed": self.seed,
                    "cohort": self.cohort.hash,
                    "train": sorted(self.subjects.train),
                }
                with store.writing(store.stage1(identity)) as folder:
                    write_tensors(folder / file.name, encoder.state_dict(), note)
        tensors, about = checkpoint.read(file)
        encoder.load_state_dict(tensors)
        return list(about["curve"]), float(about["seconds"])

    def _bandpower(self, settings: BandPowerSettings) -> Outcome:
        import numpy as np

        from bridgemil.baselines.bandpower import classifier

        def of(subjects: tuple[str, ...]) -> Any:
            return np.stack([_features(self.cohort, subject) for subject in subjects])

        number = {s: int(c) for s, c in zip(self.cohort.subjects, self.cohort.y, strict=True)}
        begun = time.perf_counter()
        model = classifier(settings.classifier, self.seed)
        train = tuple(sorted(self.subjects.train))
        model.fit(of(train), [number[s] for s in train])
        own = model.predict_proba(of(self.subjects.test))
        p = np.zeros((len(own), len(self.cohort.classes)))
        p[:, model.classes_] = own
        return Outcome(p.argmax(axis=1).tolist(), p.tolist(), seconds=time.perf_counter() - begun)

    def _write(self, folder: Path, outcome: Outcome, about: dict[str, Any]) -> None:
        import pandas as pd

        label = {subject: self.cohort.records[subject].label for subject in self.subjects.test}
        rows = [
            {
                "seed": self.seed,
                "fold": self.subjects.fold,
                "subject": subject,
                "label": label[subject],
                "predicted": self.cohort.classes[predicted],
            }
            | {f"p_{name}": value for name, value in zip(self.cohort.classes, p, strict=True)}
            for subject, predicted, p in zip(self.subjects.test, outcome.predicted, outcome.probabilities, strict=True)
        ]
        pd.DataFrame(rows).to_parquet(folder / "predictions.parquet")
        if outcome.weights:
            pd.DataFrame(outcome.curve).to_parquet(folder / "curves.parquet")
            write_tensors(folder / "windows.safetensors", outcome.windows)
            note = {"scale": outcome.scale, "channels": self.cohort.channels, "classes": self.cohort.classes}
            write_tensors(folder / "model.safetensors", outcome.weights, note)
        content = {
            "settings": self.settings.model_dump(mode="json"),
            "settings_hash": self.settings.hash,
            "cohort": {
                "hash": self.cohort.hash,
                "path": str(self.cohort.path or ""),
                "source": self.cohort.about["source"],
                "changed": changed_from_preset(self.cohort.about["source"], self.cohort.about.get("settings", {})),
                "classes": self.cohort.classes,
                "n_subjects": len(self.cohort),
                "n_windows": self.cohort.n_windows,
                "burn_in": self.cohort.burn_in,
            },
            "seed": self.seed,
            "fold": self.subjects.fold,
            "train": list(self.subjects.train),
            "validation": list(self.subjects.validation),
            "test": list(self.subjects.test),
            "selected_epoch": outcome.selected_epoch,
            "accuracy": sum(row["label"] == row["predicted"] for row in rows) / len(rows),
        } | _versions()
        write_json(folder / "run.json", content | about)


_FEATURES: WeakKeyDictionary[Cohort, dict[str, Any]] = WeakKeyDictionary()  # band power of subjects, for all folds


def _features(cohort: Cohort, subject: str) -> Any:
    from bridgemil.baselines.bandpower import features

    known = _FEATURES.setdefault(cohort, {})
    if subject not in known:
        known[subject] = features(cohort.windows(subject), cohort.sfreq)
    return known[subject]


def _versions() -> dict[str, Any]:
    from importlib.metadata import version

    from bridgemil.runs import RESULTS_VERSION

    return {"results_version": RESULTS_VERSION} | {name: version(name) for name in ("bridgemil", "torch", "numpy")}
