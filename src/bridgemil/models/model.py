"""What a fit leaves: a network, a baseline or an ensemble of them, each of which takes one person's raw windows."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import baselines
from bridgemil.cohort.signal import Signal
from bridgemil.errors import BadData, BadUse
from bridgemil.methods import Settings
from bridgemil.storage.artifact import new_artifact
from bridgemil.storage.files import write_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from bridgemil.baselines.classifiers import Classifier
    from bridgemil.learning.data import Scale
    from bridgemil.learning.networks import BagModel, WindowModel

KIND = "model"  # of an artifact that holds nothing else
ABOUT, WEIGHTS = "model.json", "model.safetensors"
# Gives an array computed of one person's windows: by its key if it is remembered, else by computing it.
Remember = Callable[[str, Callable[[], NDArray[Any]]], NDArray[Any]]


@dataclass(frozen=True)
class LazyBag:
    """A person's windows that are read only if they are needed: where features are remembered, they are not.

    Parameters
    ----------
    shape
        Windows x channels x time.
    read
        Gives the windows.
    """

    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.float32]]


Bag = NDArray[np.float32] | LazyBag


def windows_of(bag: Bag) -> NDArray[np.float32]:
    """The windows, read now if they were not."""
    return bag.read() if isinstance(bag, LazyBag) else bag


@dataclass(frozen=True)
class Prediction:
    """What a model says of one person with n windows; K is the number of classes.

    Parameters
    ----------
    predicted
        The class's number.
    probabilities
        Of each class, K.
    gates
        How far each window was let in, n; None where the method has no gates.
    contributions
        What each window adds to each class's logit, n x K; None where the method has none.
    window_probabilities
        What each window says by itself, n x K; of a majority vote only.
    """

    predicted: int
    probabilities: NDArray[np.float64]
    gates: NDArray[np.float32] | None = None
    contributions: NDArray[np.float32] | None = None
    window_probabilities: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model beside its numbers."""

    settings: Settings
    classes: tuple[str, ...]
    signal: Signal
    preparation: Mapping[str, Any]  # how its recordings were prepared; empty if it was given arrays
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=lambda: versions())

    def for_json(self) -> dict[str, Any]:
        """As ``model.json`` holds it."""
        return {
            "settings": self.settings.model_dump(mode="json"),
            "classes": list(self.classes),
            "signal": self.signal.for_json(),
            "preparation": dict(self.preparation),
            "seed": self.seed,
            "versions": dict(self.versions),
        }


class Model(ABC):
    """What a fit leaves."""

    def __init__(self, facts: ModelFacts) -> None:
        self.facts = facts

    @abstractmethod
    def predict(self, bag: Bag, remember: Remember | None = None) -> Prediction:
        """Predict one subject.

        Parameters
        ----------
        bag : ndarray of shape (n_windows, n_channels, n_times) or LazyBag
            All windows of the subject in microvolts, as in the cohort. A ``LazyBag`` is read only if ``remember``
            has no stored features of it.
        remember : callable, optional
            Stores features that several models of one subject share.

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

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Every number the model needs."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Frequency bands that are no features, because recordings or filters do not hold them, with the reason."""
        return {}

    def more(self) -> dict[str, Any]:
        """What ``model.json`` must hold beside the facts."""
        return {}

    def save(self, folder: str | Path) -> None:
        """Write the model as an artifact, replacing the content of the folder.

        Parameters
        ----------
        folder : str or Path
            Where to write.
        """
        with new_artifact(Path(folder).absolute(), KIND) as partial:
            self.write(partial)

    def write(self, folder: Path) -> None:
        """Write the model's files into a folder that becomes an artifact."""
        from bridgemil.learning.checkpoint import write_tensors

        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / WEIGHTS, self.tensors())
        write_json(folder / ABOUT, self.facts.for_json() | self.more())

    def _check(self, bag: Bag) -> None:
        signal = self.facts.signal
        expected = (signal.n_channels, signal.n_times)
        if len(bag.shape) != 3 or bag.shape[1:] != expected or not bag.shape[0]:
            raise BadData(
                f"the model takes windows x {expected[0]} channels x {expected[1]} samples, at least one window; "
                f"got {' x '.join(map(str, bag.shape))}"
            )


class NetworkModel(Model):
    """An encoder with a window classifier or an aggregator."""

    def __init__(
        self, facts: ModelFacts, network: WindowModel | BagModel, scale: Scale | None, device: torch.device
    ) -> None:
        super().__init__(facts)
        self.network, self.scale, self.device = network, scale, device

    @property
    def left_out(self) -> Mapping[str, str]:
        """The front end's, where there is one."""
        front_end: Any = getattr(self.network.encoder, "front_end", None)
        return {} if front_end is None else getattr(front_end, "left_out", {})

    def predict(self, bag: Bag, remember: Remember | None = None) -> Prediction:
        """What the network says of one person."""
        from bridgemil.learning.networks import WindowModel, vote

        self._check(bag)
        blocks = self._blocks(bag, remember)
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

        self._check(bag)
        embeddings: NDArray[np.float32] = in_blocks(self.network.encoder, self._blocks(bag), self.device).cpu().numpy()
        return embeddings

    def _blocks(self, bag: Bag, remember: Remember | None = None) -> Iterator[Tensor]:
        """The windows, or a front end's features of them, as the encoder takes them: a block at a time."""
        import torch

        from bridgemil.learning.data import BLOCK, normalised

        front_end: Any = getattr(self.network.encoder, "front_end", None)
        if front_end is not None:
            key = front_end_key(front_end)
            rows = (remember or compute_anew)(key, lambda: front_end_features(front_end, windows_of(bag)))
        else:
            rows = windows_of(bag)
        for first in range(0, len(rows), BLOCK):
            part = np.array(rows[first : first + BLOCK], dtype=np.float32)
            yield torch.from_numpy(part if self.scale is None else normalised(part, self.scale))

    def tensors(self) -> dict[str, Tensor]:
        """Weights, and the scale of the training subjects."""
        import torch

        weights = {f"network.{name}": value.cpu() for name, value in self.network.state_dict().items()}
        if self.scale is not None:
            mean, std = (torch.from_numpy(np.array(values, dtype=np.float64)) for values in self.scale)
            weights |= {"scale.mean": mean, "scale.std": std}
        return weights


class BaselineModel(Model):
    """A classifier on features of the person."""

    def __init__(self, facts: ModelFacts, baseline: baselines.Baseline, classifier: Classifier) -> None:
        super().__init__(facts)
        self.baseline, self.classifier = baseline, classifier

    @property
    def left_out(self) -> Mapping[str, str]:
        """The baseline's."""
        return self.baseline.left_out

    def predict(self, bag: Bag, remember: Remember | None = None) -> Prediction:
        """What the classifier says of one person."""
        self._check(bag)
        key = baseline_key(self.facts.settings, self.baseline)
        features = (remember or compute_anew)(key, lambda: self.baseline.features(windows_of(bag)))
        p = self.classifier.probabilities(features[None])[0]
        return Prediction(int(p.argmax()), p)

    def embed(self, bag: NDArray[np.float32]) -> NDArray[Any]:
        """The person's features, 1 x f."""
        self._check(bag)
        return self.baseline.features(bag)[None]

    def tensors(self) -> dict[str, Tensor]:
        """The classifier's numbers."""
        import torch

        return {name: torch.from_numpy(np.array(value)) for name, value in self.classifier.tensors().items()}

    def more(self) -> dict[str, Any]:
        """Which classifier the numbers are of."""
        return {"classifier": self.classifier.kind}


class EnsembleModel(Model):
    """Several models of the same signal and classes, whose probabilities are averaged.

    Of gates, contributions and window probabilities it gives the mean over the members that have them.

    Parameters
    ----------
    facts
        What is known of the whole.
    members
        By name; a name is the member's folder when the ensemble is saved.
    """

    def __init__(self, facts: ModelFacts, members: Mapping[str, Model]) -> None:
        super().__init__(facts)
        if not members:
            raise BadUse("an ensemble needs at least one member")
        for name, member in members.items():
            if member.facts.signal != facts.signal or member.facts.classes != facts.classes:
                raise BadData(f"{name}: its signal or classes are not those of the ensemble")
        self.members = dict(members)

    def predict(self, bag: Bag, remember: Remember | None = None) -> Prediction:
        """The mean of what the members say; the likeliest class is predicted."""
        remember = remember or in_memory()
        said = [member.predict(bag, remember) for member in self.members.values()]
        p: NDArray[np.float64] = np.mean([each.probabilities for each in said], axis=0)
        return Prediction(
            int(p.argmax()),
            p,
            *(_mean_of_those_given([getattr(each, part) for each in said])
              for part in ("gates", "contributions", "window_probabilities")),
        )  # fmt: skip

    def embed(self, bag: NDArray[np.float32]) -> NDArray[np.float32]:
        """The members' embeddings side by side, n x (sum of d); a baseline's features are repeated for each window."""
        parts = [member.embed(bag) for member in self.members.values()]
        rows = max(len(part) for part in parts)
        return np.concatenate([np.broadcast_to(part, (rows, part.shape[1])) for part in parts], axis=1)

    def tensors(self) -> dict[str, Tensor]:
        """None but its members'."""
        return {}

    def write(self, folder: Path) -> None:
        """Write each member into a folder of its own below."""
        for name, member in self.members.items():
            member.write(folder / name)
        write_json(folder / ABOUT, self.facts.for_json() | {"members": list(self.members)})


def _mean_of_those_given(values: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    given = [value for value in values if value is not None]
    return np.mean(given, axis=0) if given else None


def compute_anew(key: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Remembers nothing."""
    return compute()


def in_memory() -> Remember:
    """Remembers as long as it lives; for one person only."""
    known: dict[str, NDArray[Any]] = {}

    def remember(key: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        if key not in known:
            known[key] = compute()
        return known[key]

    return remember


def baseline_key(settings: Settings, baseline: baselines.Baseline) -> str:
    """Names what decides a baseline's features."""
    return json.dumps([settings.method, settings.code, baseline.features_key], sort_keys=True)


def front_end_key(front_end: Any) -> str:
    """Names what decides a front end's features."""
    return json.dumps(["front end", front_end.key], sort_keys=True)


def front_end_features(front_end: Any, bag: NDArray[np.float32]) -> NDArray[np.float32]:
    """A front end's features of one person's windows (n x C x T, microvolts): n x F."""
    import torch

    from bridgemil.learning.data import BLOCK

    front_end.check(bag)
    device = next(front_end.buffers()).device
    parts = [np.array(bag[first : first + BLOCK], dtype=np.float32) for first in range(0, len(bag), BLOCK)]
    return np.concatenate([front_end(torch.from_numpy(part).to(device)).cpu().numpy() for part in parts])


def versions() -> dict[str, str]:
    """What computed the numbers."""
    from importlib.metadata import version

    return {name: version(name) for name in ("bridgemil", "torch", "numpy")}
