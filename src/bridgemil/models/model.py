"""Fitted models: a network, a baseline or an ensemble of them, each of which takes the raw windows of one subject."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from bridgemil import baselines
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.views import RecordingBags
from bridgemil.errors import BadData
from bridgemil.methods import Settings
from bridgemil.models.features import Bag, Features, FitCache, LazyBag
from bridgemil.models.harmonisation import Harmonisation, Scale, mapped
from bridgemil.storage.artifact import new_artifact
from bridgemil.storage.files import write_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bridgemil.baselines.classifiers import Classifier
    from bridgemil.cohort.cohort import Cohort
    from bridgemil.learning.data import Scale as ChannelScale
    from bridgemil.learning.networks import BagModel, WindowModel

KIND = "model"  # of an artifact that holds nothing else
METADATA, WEIGHTS, FROZEN = "model.json", "model.safetensors", "encoder.safetensors"


@dataclass(frozen=True)
class Prediction:
    """The prediction of one subject with n windows; K is the number of classes. What a method does not have is None."""

    predicted: int  # number of the class
    probabilities: NDArray[np.float64]  # K
    gates: NDArray[np.float32] | None = None  # attention weights of the windows, n
    contributions: NDArray[np.float32] | None = None  # of windows to logits (of a baseline centred over classes), n x K
    window_probabilities: NDArray[np.float32] | None = None  # of each window alone, of a majority vote; n x K


def versions() -> dict[str, str]:
    """Versions of the packages that computed the numbers."""
    from importlib.metadata import version

    return {name: version(name) for name in ("bridgemil", "torch", "numpy")}


@dataclass(frozen=True)
class ModelFacts:
    """The metadata of a model."""

    settings: Settings
    classes: tuple[str, ...]
    signal: Signal
    preparation: Mapping[str, Any]  # how its recordings were prepared; empty if it was given arrays
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=versions)

    @classmethod
    def of(cls, cohort: Cohort, settings: Settings, seed: int) -> ModelFacts:
        """The metadata of a model that is fitted on a cohort."""
        return cls(settings, tuple(cohort.classes), cohort.signal, cohort.preparation, seed)

    def for_json(self) -> dict[str, Any]:
        """The content of ``model.json``."""
        settings, signal = self.settings.model_dump(mode="json"), self.signal.for_json()
        own = {"preparation": dict(self.preparation), "seed": self.seed, "versions": dict(self.versions)}
        return {"settings": settings, "classes": list(self.classes), "signal": signal, **own}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Undo ``for_json``."""
        settings, signal = Settings.model_validate(content["settings"]), Signal.from_json(content["signal"])
        more = content["preparation"], int(content["seed"]), content["versions"]
        return cls(settings, tuple(content["classes"]), signal, *more)


@dataclass(eq=False, repr=False)
class Model(ABC):
    """A fitted model."""

    facts: ModelFacts
    harmonisation: Harmonisation | None = field(default=None, kw_only=True)  # for the subject's site and covariates
    row: Mapping[str, Any] = field(default_factory=dict, kw_only=True)  # columns of the subject to predict

    @property
    def features(self) -> Features | None:
        """What it computes first of a subject's windows, if that can be stored."""
        return None

    def for_subject(self, row: Mapping[str, Any]) -> Self:
        """The model for a subject with this site and these covariates."""
        return self if self.harmonisation is None else replace(self, row=row)

    @property
    def sites(self) -> frozenset[str]:
        """The sites whose features it adjusts, "" for any other if it was adapted to one; empty if it adjusts none."""
        return frozenset() if self.harmonisation is None else frozenset(self.harmonisation.sites)

    def moved(self, scale_of: Callable[[Model], Scale]) -> Self:
        """The model for recordings of another site, which is not known by name.

        ``scale_of`` gives, of this model or of each member of an ensemble, the map of the site's features, x -> (x -
        first) / second.
        """
        own = self.harmonisation or Harmonisation()
        return replace(self, harmonisation=replace(own, sites={**own.sites, "": scale_of(self)}))

    def adjusted(self, features: NDArray[Any]) -> NDArray[Any]:
        """Features of the subject, or of its windows (F or n x F), after harmonisation."""
        return features if self.harmonisation is None else mapped(features, self.harmonisation.scale(self.row))

    @abstractmethod
    def predict(self, bag: Bag) -> Prediction:
        """Predict one subject.

        Parameters
        ----------
        bag : ndarray of shape (n_windows, n_channels, n_times) or LazyBag
            All windows in microvolts, as in the cohort; a ``LazyBag`` is read only if no features of it are stored.

        Returns
        -------
        Prediction
        """

    @abstractmethod
    def embed(self, bag: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeddings of the windows of one subject.

        Parameters
        ----------
        bag : ndarray of shape (n_windows, n_channels, n_times)
            In microvolts.

        Returns
        -------
        ndarray of shape (n_windows, d)
            For a baseline the features of the subject, (1, f).
        """

    @property
    def left_out(self) -> Mapping[str, str]:
        """Frequency bands that are no features, because recordings or filters do not hold them, with the reason."""
        return {} if self.features is None else self.features.left_out

    def save(self, folder: str | Path) -> None:
        """Write the model as an artifact.

        Parameters
        ----------
        folder : str or Path
            Its content is replaced.
        """
        with new_artifact(Path(folder).absolute(), KIND) as partial:
            self.write(partial)

    @property
    def frozen(self) -> nn.Module | None:
        """The encoder that was never trained, if there is one."""
        return None

    def write(self, folder: Path, *, encoder: bool = True) -> None:
        """Write the model's files into a folder that becomes an artifact, with the weights of a frozen encoder or not.

        A run goes without them: all of its folder share them, and its settings name their file.
        """
        from bridgemil.learning.checkpoint import write_tensors

        folder.mkdir(parents=True, exist_ok=True)
        if encoder and self.frozen is not None:
            write_tensors(folder / FROZEN, self.frozen.state_dict())
        write_json(folder / METADATA, self.facts.for_json() | self._write(folder))

    def _write(self, folder: Path) -> dict[str, Any]:
        """Write what was learnt; further content of ``model.json``."""
        import torch

        from bridgemil.learning.checkpoint import write_tensors

        tensors, content = self.learnt()
        if self.harmonisation is not None:
            tensors |= {name: torch.from_numpy(values) for name, values in self.harmonisation.tensors().items()}
            content |= {"harmonisation": self.harmonisation.for_json()}
        write_tensors(folder / WEIGHTS, tensors)
        return content

    def learnt(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Every number the model needs, and further content of ``model.json``."""
        raise NotImplementedError

    def check(self, bag: Bag) -> None:
        """Refuse windows of another shape than the model was fitted on."""
        signal = self.facts.signal
        expected = (signal.n_channels, signal.n_times)
        if len(bag.shape) != 3 or bag.shape[1:] != expected or not bag.shape[0]:
            raise BadData(
                f"the model takes windows x {expected[0]} channels x {expected[1]} samples, at least one window; "
                f"got {' x '.join(map(str, bag.shape))}"
            )


@dataclass(eq=False, repr=False)
class NetworkModel(Model):
    """An encoder with a window classifier or an aggregator."""

    network: WindowModel | BagModel
    scale: ChannelScale | None
    device: torch.device

    @cached_property
    def features(self) -> Features | None:
        """Those of the encoder's front end, if it has one."""
        return Features.of_encoder(self.network.encoder)

    def predict(self, bag: Bag) -> Prediction:
        """Predict one subject."""
        from bridgemil.learning.networks import WindowModel, vote

        blocks = self._blocks(bag)
        if isinstance(self.network, WindowModel):
            found = vote(self.network, blocks, self.device)
            p = found.probabilities.double().numpy()
            return Prediction(found.predicted, p, window_probabilities=found.windows.numpy())
        output = self.network.explain(blocks, self.device)
        logits = output.logits[0].double().cpu()
        contributions = None if output.contributions is None else output.contributions[0].cpu().numpy()
        p = logits.softmax(dim=0).numpy()
        return Prediction(int(logits.argmax()), p, output.gates[0].cpu().numpy(), contributions)

    def embed(self, bag: NDArray[np.float32]) -> NDArray[np.float32]:
        """The windows' embeddings, n x d."""
        from bridgemil.learning.networks import in_blocks

        embeddings: NDArray[np.float32] = in_blocks(self.network.encoder, self._blocks(bag), self.device).cpu().numpy()
        return embeddings

    def _blocks(self, bag: Bag) -> Iterator[Tensor]:
        """The windows, or the front end's features of them, as the encoder takes them: a block at a time."""
        import torch

        from bridgemil.learning.data import BLOCK, normalised

        self.check(bag)
        windows = LazyBag.of(bag)
        rows = windows.read() if self.features is None else windows.features(self.features)
        for first in range(0, len(rows), BLOCK):
            part = self.adjusted(np.array(rows[first : first + BLOCK], dtype=np.float32))
            yield torch.from_numpy(part if self.scale is None else normalised(part, self.scale))

    @property
    def frozen(self) -> nn.Module | None:
        """The encoder of a ``bridgemil.learning.frozen.Frozen``."""
        return self.network.encoder.front_end.encoder if self.facts.settings.frozen else None  # type: ignore

    def learnt(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights, and the scale of the training subjects."""
        import torch

        weights = {f"network.{name}": value.cpu() for name, value in self.network.state_dict().items()}
        if self.scale is not None:
            mean, std = (torch.from_numpy(np.array(values, dtype=np.float64)) for values in self.scale)
            weights |= {"scale.mean": mean, "scale.std": std}
        return weights, {}


@dataclass(eq=False, repr=False)
class BaselineModel(Model):
    """A classifier on features of the subject."""

    baseline: baselines.Baseline
    classifier: Classifier

    @cached_property
    def features(self) -> Features:
        """Those of the baseline."""
        return Features.of_baseline(self.facts.settings, self.baseline)

    @property
    def window_features(self) -> Features | None:
        """Features of single windows, whose mean is the subject's; None where they have no names."""
        baseline = self.baseline
        if baseline.feature_names is None:
            return None
        if baseline.front_end is not None:
            return Features.of_front_end(baseline.front_end)
        return Features(f"{self.features.key} of windows", baseline.window_features, True, baseline.left_out)

    def predict(self, bag: Bag) -> Prediction:
        """Predict one subject; the contributions of windows to a linear classifier's logits are exact."""
        self.check(bag)
        bag = LazyBag.of(bag)
        p = self.classifier.probabilities(self.adjusted(bag.features(self.features))[None])[0]
        contributions = None
        if self.classifier.regressions() and (of_windows := self.window_features) is not None:
            exact = self.classifier.contributions(self.adjusted(bag.features(of_windows)))
            contributions = None if exact is None else exact.astype(np.float32)
        return Prediction(int(p.argmax()), p, contributions=contributions)

    def embed(self, bag: NDArray[np.float32]) -> NDArray[Any]:
        """The features of the subject, 1 x f."""
        self.check(bag)
        return self.adjusted(self.baseline.features(bag))[None]

    def learnt(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The classifier's numbers, and its kind."""
        import torch

        tensors = {name: torch.from_numpy(np.array(value)) for name, value in self.classifier.tensors().items()}
        return tensors, {"classifier": self.classifier.kind}


@dataclass(eq=False, repr=False)
class EnsembleModel(Model):
    """Several models, by name: the mean of their probabilities, weighted by ``Settings.weight``.

    Attention weights, contributions and window probabilities are means over the members that have them. A name is the
    member's folder when the ensemble is saved.
    """

    members: Mapping[str, Model]

    def __post_init__(self) -> None:
        for name, member in self.members.items():
            if member.facts.signal != self.facts.signal or member.facts.classes != self.facts.classes:
                raise BadData(f"{name}: its signal or classes are not those of the ensemble")

    def for_subject(self, row: Mapping[str, Any]) -> Self:
        """Every member for this subject."""
        return replace(self, members={name: member.for_subject(row) for name, member in self.members.items()})

    @property
    def sites(self) -> frozenset[str]:
        """The sites that all members know which adjust any."""
        known = [member.sites for member in self.members.values() if member.sites]
        return known[0].intersection(*known) if known else frozenset()

    def moved(self, scale_of: Callable[[Model], Scale]) -> Self:
        """Every member for recordings of another site."""
        return replace(self, members={name: member.moved(scale_of) for name, member in self.members.items()})

    def predict(self, bag: Bag) -> Prediction:
        """The mean of the members' predictions; the class with the highest probability is predicted."""
        bag = LazyBag.of(bag)
        predictions = [member.predict(bag) for member in self.members.values()]
        weights = [member.facts.settings.weight for member in self.members.values()]

        def mean(part: str) -> NDArray[Any] | None:
            pairs = [(getattr(prediction, part), w) for prediction, w in zip(predictions, weights, strict=True)]
            given = [(values, weight) for values, weight in pairs if values is not None]
            return np.average([v for v, _ in given], axis=0, weights=[w for _, w in given]) if given else None

        p: NDArray[np.float64] = np.average([each.probabilities for each in predictions], axis=0, weights=weights)
        return Prediction(int(p.argmax()), p, mean("gates"), mean("contributions"), mean("window_probabilities"))

    def embed(self, bag: NDArray[np.float32]) -> NDArray[np.float32]:
        """The members' embeddings side by side, n x (sum of d); a baseline's features are repeated for each window."""
        parts = [member.embed(bag) for member in self.members.values()]
        rows = max(len(part) for part in parts)
        return np.concatenate([np.broadcast_to(part, (rows, part.shape[1])) for part in parts], axis=1)

    @property
    def frozen(self) -> nn.Module | None:
        """The frozen encoder, which all members that have one share."""
        return next((member.frozen for member in self.members.values() if member.frozen is not None), None)

    def _write(self, folder: Path) -> dict[str, Any]:
        """Write each member into a folder of its own below."""
        for name, member in self.members.items():
            member.write(folder / name, encoder=False)
        return {"members": list(self.members)}


def predict_subject(model: Model, cohort: Cohort, subject: str, cache: FitCache) -> Prediction:
    """The prediction of a subject of a cohort, with cached features; of a model of single recordings their mean.

    Values of windows stay those of their own recording, one recording after the other.
    """
    if model.facts.settings.each[0].bags == "subject":  # members share it; an ensemble's own settings do not hold it
        return model.predict(LazyBag.of_subject(cohort, subject, cache))
    view = RecordingBags(cohort, [subject])
    parts = [model.predict(LazyBag.of_subject(view, name, cache)) for name in view.subjects]

    def joined(name: str) -> NDArray[Any] | None:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else np.concatenate(values)

    p: NDArray[np.float64] = np.mean([part.probabilities for part in parts], axis=0)
    return Prediction(int(p.argmax()), p, *map(joined, ("gates", "contributions", "window_probabilities")))
