"""A fitted model, network or baseline alike: what a fit leaves, what it says of a person, and how it is kept.

``fit`` learns from a training and a validation set of subjects and returns a model. A model takes the raw windows of
one person (microvolts) and does the rest itself: normalisation or front end, embedding, aggregation. On disk:

    model.json            settings, classes, signal, preparation, versions
    model.safetensors     weights, or the numbers of a classifier; mean and deviation of the training subjects
    <member>/             of an ensemble, whose model.json names its members: a folder like this one for each

Nothing in it executes. A network whose backbone is the user's own code is loaded by naming that code again.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bridgemil import backbones, baselines
from bridgemil.cohort.signal import Signal
from bridgemil.cohort.store import Cohort
from bridgemil.disk import write_json
from bridgemil.errors import BadData, BadUse
from bridgemil.methods import Settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bridgemil.baselines.classifiers import Classifier
    from bridgemil.learning.bags import BagModel
    from bridgemil.learning.loop import Curve, Trained, Watch
    from bridgemil.learning.reading import Scale
    from bridgemil.learning.window_set import WindowSet
    from bridgemil.learning.windows import WindowModel

FORMAT = 1
ABOUT, WEIGHTS = "model.json", "model.safetensors"


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
            "format": FORMAT,
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
    def predict(self, bag: NDArray[np.float32], shelf: Shelf | None = None) -> Prediction:
        """What the model says of one person.

        Parameters
        ----------
        bag
            All windows of the person, n x channels x time, in microvolts, as the cohort has them.
        shelf
            Where several models asked of this one person keep what is computed once for all of them.
        """

    @abstractmethod
    def embed(self, bag: NDArray[np.float32]) -> NDArray[np.float32]:
        """The windows' embeddings, n x d; of a baseline the person's features, 1 x f."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Every number the model needs."""

    def more(self) -> dict[str, Any]:
        """What ``model.json`` must hold beside the facts."""
        return {}

    def save(self, folder: str | Path) -> None:
        """Write the model into a folder, which is made if it is not there."""
        from bridgemil.learning import checkpoint

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.write(folder / WEIGHTS, self.tensors(), {})
        write_json(folder / ABOUT, self.facts.for_json() | self.more())

    def _check(self, bag: NDArray[np.float32]) -> None:
        signal = self.facts.signal
        expected = (signal.n_channels, signal.n_times)
        if bag.ndim != 3 or bag.shape[1:] != expected or not len(bag):
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

    def predict(self, bag: NDArray[np.float32], shelf: Shelf | None = None) -> Prediction:
        """What the network says of one person."""
        from bridgemil.learning.fitting import predict

        self._check(bag)
        said = predict(self.network, self._blocks(bag, shelf), self.device)
        return Prediction(
            said.predicted,
            said.probabilities.numpy(),
            *(
                None if values is None else values.numpy()
                for values in (said.gates, said.contributions, said.window_probabilities)
            ),
        )

    def embed(self, bag: NDArray[np.float32]) -> NDArray[np.float32]:
        """The windows' embeddings, n x d."""
        from bridgemil.learning.embeddings import in_blocks

        self._check(bag)
        embeddings: NDArray[np.float32] = in_blocks(self.network.encoder, self._blocks(bag), self.device).cpu().numpy()
        return embeddings

    def _blocks(self, bag: NDArray[np.float32], shelf: Shelf | None = None) -> Iterator[Tensor]:
        """The windows as the encoder takes them, a block at a time; a front end's features of them if shared."""
        import torch

        from bridgemil.learning.reading import normalised
        from bridgemil.learning.window_set import BLOCK

        front_end: Any = getattr(self.network.encoder, "front_end", None)
        for first in range(0, len(bag), BLOCK):
            part = np.asarray(bag[first : first + BLOCK], dtype=np.float32)
            block = torch.from_numpy(np.array(part) if self.scale is None else normalised(part, self.scale))
            if shelf is None or front_end is None or self.device.type != "cpu":
                yield block
                continue
            key = json.dumps(["front end", front_end.key, first], sort_keys=True)
            yield torch.from_numpy(shelf.features(key, "", partial(_as_array, front_end, block)))

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

    def predict(self, bag: NDArray[np.float32], shelf: Shelf | None = None) -> Prediction:
        """What the classifier says of one person."""
        self._check(bag)
        key = json.dumps([self.facts.settings.method, self.facts.settings.code, self.baseline.features_key])
        features = (shelf or Shelf()).features(key, "", lambda: self.baseline.features(bag))
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

    def predict(self, bag: NDArray[np.float32], shelf: Shelf | None = None) -> Prediction:
        """The mean of what the members say; the likeliest class is predicted."""
        shelf = shelf or Shelf()
        said = [member.predict(bag, shelf) for member in self.members.values()]
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

    def save(self, folder: str | Path) -> None:
        """Write the ensemble into a folder, each member into one of its own below."""
        folder = Path(folder)
        for name, member in self.members.items():
            member.save(folder / name)
        write_json(folder / ABOUT, self.facts.for_json() | {"members": list(self.members)})


def _mean_of_those_given(values: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    given = [value for value in values if value is not None]
    return np.mean(given, axis=0) if given else None


def _as_array(front_end: Any, windows: Tensor) -> NDArray[np.float32]:
    features: NDArray[np.float32] = front_end(windows).numpy()
    return features


def load(folder: str | Path, *, backbone: str | None = None, device: str = "cpu") -> Model:
    """Read a model that ``save`` wrote, or a finished run's.

    Parameters
    ----------
    folder
        Where it is.
    backbone
        Needed if the model was trained with your own code: the same address again (``net.py:Tiny``) or registered name.
        A folder never makes code run by itself.
    device
        Where to predict.
    """
    import torch

    from bridgemil.learning import checkpoint

    folder = Path(folder)
    facts, about = _facts(folder)
    if "members" in about:
        names = [_plain_name(folder, name) for name in about["members"]]
        return EnsembleModel(facts, {name: load(folder / name, backbone=backbone, device=device) for name in names})
    if not (folder / WEIGHTS).is_file():
        raise BadData(f"{folder / WEIGHTS}: is not there; the model is not whole")
    tensors, _ = checkpoint.read(folder / WEIGHTS)
    settings = facts.settings
    if not settings.is_network:
        from bridgemil.baselines.classifiers import rebuild

        baseline = baselines.create(settings.method, settings.baseline or {}, facts.signal)
        numbers = {name: value.numpy() for name, value in tensors.items()}
        return BaselineModel(facts, baseline, rebuild(about["classifier"], numbers))
    chosen = _backbone(settings, facts.signal, backbone)
    network = build(chosen, facts.signal, len(facts.classes))
    try:
        network.load_state_dict(checkpoint.under("network", tensors))
    except RuntimeError as error:
        raise BadData(f"{folder / WEIGHTS}: does not fit its settings ({str(error).splitlines()[0]})") from None
    scale = (tensors["scale.mean"].numpy(), tensors["scale.std"].numpy()) if "scale.mean" in tensors else None
    where = torch.device(device)
    return NetworkModel(facts, network.to(where).eval(), scale, where)


def _plain_name(folder: Path, name: Any) -> str:
    """A member's name, which must not lead out of the ensemble's folder."""
    if not isinstance(name, str) or re.fullmatch(r"[\w+-][\w+.-]*", name) is None:
        raise BadData(f"{folder / ABOUT}: {name!r} is no name of a member; the file was changed or is not ours")
    return name


def _facts(folder: Path) -> tuple[ModelFacts, dict[str, Any]]:
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text("utf-8"))
        if about["format"] != FORMAT:
            raise BadData(f"{folder}: model format {about['format']}, this version reads {FORMAT}")
        facts = ModelFacts(
            Settings.model_validate(about["settings"]),
            tuple(about["classes"]),
            Signal.from_json(about["signal"]),
            about["preparation"],
            int(about["seed"]),
            about["versions"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadData(f"{folder}: no model there, or a damaged one ({error})") from None
    return facts, about


def _backbone(settings: Settings, signal: Signal, given: str | None) -> Settings:
    """The settings with the backbone to build; the user's own code only if the user names it."""
    if settings.code is None:
        return settings
    if given is None:
        raise BadUse(
            f"the model was trained with code that is not bridgemil's ({settings.backbone}), and a folder never makes "
            "code run: name it again, backbone=…"
        )
    name = backbones.absolute(given)
    if backbones.try_out(name, signal, settings.backbone_options) != settings.code:
        raise BadData(f"{given}: is not the code the model was trained with, or has changed since")
    return settings.model_copy(update={"backbone": name})


def _refuse_changed_code(settings: Settings, signal: Signal) -> None:
    """A run's name holds the fingerprint of the user's code: other code must not train under it."""
    if settings.code is None or settings.backbone is None:
        return
    if backbones.try_out(settings.backbone, signal, settings.backbone_options) != settings.code:
        raise BadData(f"{settings.backbone}: has changed since this run was planned; run the same command again")


def encoder_for(settings: Settings, signal: Signal) -> nn.Module:
    """A new encoder, drawn from torch's generator."""
    assert settings.backbone is not None
    return backbones.for_signal(settings.backbone, signal, settings.backbone_options)


def build(settings: Settings, signal: Signal, n_classes: int) -> WindowModel | BagModel:
    """The network of these settings, with weights still to be loaded."""
    import torch

    from bridgemil.learning.fitting import assemble

    assert settings.stage2 is not None
    assert settings.backbone is not None
    with torch.random.fork_rng([]):
        return assemble(encoder_for(settings, signal), settings.backbone, n_classes, settings.stage2)


class Shelf:
    """Where a fit keeps what it can go on from, and what fits share. This one keeps nothing but features, in memory."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, str], NDArray[Any]] = {}

    def checkpoint(self) -> Path | None:
        """Where an unfinished fit keeps its state."""
        return None

    def stage1(self, train: Callable[[Path | None], tuple[dict[str, Tensor], dict[str, Any]]]) -> tuple[
        dict[str, Tensor], dict[str, Any]
    ]:  # fmt: skip
        """The Stage 1 encoder and what is known of it; ``train`` makes it (with a file to go on from)."""
        return train(None)

    def features(self, key: str, signal_hash: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """An array computed from one person's windows alone; ``key`` names how."""
        if (key, signal_hash) not in self._arrays:
            self._arrays[key, signal_hash] = compute()
        return self._arrays[key, signal_hash]


@dataclass(frozen=True)
class Fit:
    """A fitted model and how it came about."""

    model: Model
    curve: Curve
    selected_epoch: int | None
    seconds: float  # of training, over all resumes, Stage 1 included wherever it was trained
    threads: int


def fit(
    cohort: Cohort,
    train: Sequence[str],
    validation: Sequence[str],
    settings: Settings,
    seed: int = 0,
    *,
    device: torch.device | None = None,
    shelf: Shelf | None = None,
    watch: Watch | None = None,
) -> Fit:
    """Learn from some subjects of a cohort.

    Parameters
    ----------
    cohort
        Holds the subjects' windows. No other subject's are read.
    train, validation
        Ids of the subjects to learn from, and to select the epoch by (a baseline selects nothing).
    settings
        From ``bridgemil.methods.for_cohort``.
    seed
        Of weights, sampling and dropout.
    device
        Where to train; the CPU by default.
    shelf
        Where to keep and share.
    watch
        Called after every epoch.
    """
    shelf = shelf or Shelf()
    facts = ModelFacts(settings, tuple(cohort.classes), cohort.signal, cohort.preparation, seed)
    if settings.is_network:
        import torch

        return _fit_network(cohort, train, validation, facts, device or torch.device("cpu"), shelf, watch)
    return _fit_baseline(cohort, train, facts, shelf)


def fit_whole(
    cohort: Cohort,
    train: Sequence[str],
    validation: Sequence[str],
    settings: Settings,
    seed: int = 0,
    *,
    device: torch.device | None = None,
    shelf: Callable[[Settings], Shelf] | None = None,
    watch: Watch | None = None,
) -> Model:
    """Learn from all subjects that are given, none of whom will test the model.

    Parameters are those of ``fit``, but for: ``settings`` may be an ensemble's, and ``shelf`` gives each member its
    own. A baseline, which selects nothing, learns from the validation subjects too.
    """
    shared = Shelf()
    fitted = {}
    for member in settings.each:
        learning = train if member.is_network else [*train, *validation]
        kept = shared if shelf is None else shelf(member)
        made = fit(cohort, learning, validation, member, seed, device=device, shelf=kept, watch=watch)
        fitted[member.method] = made.model
    if not settings.members:
        return fitted[settings.method]
    return EnsembleModel(ModelFacts(settings, tuple(cohort.classes), cohort.signal, cohort.preparation, seed), fitted)


def _fit_baseline(cohort: Cohort, train: Sequence[str], facts: ModelFacts, shelf: Shelf) -> Fit:
    begun = time.perf_counter()
    baseline = baselines.create(facts.settings.method, facts.settings.baseline or {}, facts.signal)
    key = json.dumps([facts.settings.method, facts.settings.code, baseline.features_key], sort_keys=True)
    ids = sorted(train)
    rows = []
    for subject in ids:
        try:
            rows.append(features_of(shelf, key, cohort, subject, baseline.features))
        except BadData as error:
            raise BadData(f"{subject}: {error}") from error
    y = np.array([cohort.classes.index(cohort.records[subject].label) for subject in ids])
    classifier = baseline.fit(np.stack(rows), y, len(facts.classes), facts.seed)
    return Fit(BaselineModel(facts, baseline, classifier), [], None, time.perf_counter() - begun, 1)


def features_of(
    shelf: Shelf, key: str, cohort: Cohort, subject: str, compute: Callable[[NDArray[np.float32]], NDArray[Any]]
) -> NDArray[Any]:
    """Features of one subject's windows, computed once for all fits that share a shelf."""
    return shelf.features(key, cohort.records[subject].signal_hash, lambda: compute(cohort.windows(subject)))


def _fit_network(
    cohort: Cohort,
    train: Sequence[str],
    validation: Sequence[str],
    facts: ModelFacts,
    device: torch.device,
    shelf: Shelf,
    watch: Watch | None,
) -> Fit:
    import torch

    from bridgemil.learning.fitting import Here, fit_network
    from bridgemil.learning.streams import Streams
    from bridgemil.learning.window_set import WindowSet

    settings, ids = facts.settings, sorted(train)
    assert settings.stage2 is not None
    assert settings.backbone is not None
    here = Here(Streams.of(facts.seed, ids), device, watch)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # the caller's random numbers are theirs
        _refuse_changed_code(settings, facts.signal)
        here.streams.start("encoder")
        encoder = encoder_for(settings, facts.signal).to(device)
        arrays = front_end_arrays(encoder, cohort, shelf)
        scale = cohort.normalisation(ids) if arrays is None else None
        training = WindowSet.load(cohort, ids, scale, arrays)
        validating = WindowSet.load(cohort, sorted(validation), scale, arrays)
        before, seconds = _stage1(encoder, training, settings, here, shelf)
        network, trained = fit_network(
            encoder, settings.backbone, training, validating, settings.stage2, here, shelf.checkpoint(),
            pretrained=settings.stage1 is not None,
        )  # fmt: skip
    model = NetworkModel(facts, network, scale, device)
    return Fit(model, before + trained.curve, trained.epoch, seconds + trained.seconds, torch.get_num_threads())


def front_end_arrays(encoder: nn.Module, cohort: Cohort, shelf: Shelf) -> Callable[[str], NDArray[np.float32]] | None:
    """Where the encoder has a front end: a function from a subject to its features (n x F); None elsewhere.

    A front end is a function of the window alone, so one person's features depend on nobody else's.
    """
    front_end: Any = getattr(encoder, "front_end", None)
    if front_end is None:
        return None
    key = json.dumps(["front end", front_end.key], sort_keys=True)

    def features(subject: str) -> NDArray[np.float32]:
        try:
            return features_of(shelf, key, cohort, subject, lambda bag: front_end_features(front_end, bag))
        except BadData as error:
            raise BadData(f"{subject}: {error}") from error

    return features


def front_end_features(front_end: Any, bag: NDArray[np.float32]) -> NDArray[np.float32]:
    """A front end's features of one person's windows (n x C x T, microvolts): n x F."""
    import torch

    from bridgemil.learning.window_set import BLOCK

    front_end.check(bag)
    parts = [np.array(bag[first : first + BLOCK], dtype=np.float32) for first in range(0, len(bag), BLOCK)]
    return np.concatenate([front_end(torch.from_numpy(part)).numpy() for part in parts])


def _stage1(
    encoder: nn.Module, training: WindowSet, settings: Settings, here: Any, shelf: Shelf
) -> tuple[Curve, float]:
    """Load the Stage 1 encoder from the shelf, training it first if nobody has; its curve and seconds."""
    from bridgemil.learning.fitting import pretrain

    stage1, backbone = settings.stage1, settings.backbone
    if stage1 is None or backbone is None:
        return [], 0.0

    def train(keep: Path | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        trained: Trained = pretrain(encoder, backbone, training, stage1, here, keep)
        return encoder.state_dict(), {"curve": trained.curve, "seconds": trained.seconds}

    tensors, note = shelf.stage1(train)
    try:
        encoder.load_state_dict(tensors)
    except RuntimeError as error:
        raise BadData(
            f"the stored Stage 1 encoder does not fit the backbone {backbone} ({str(error).splitlines()[0]}); "
            "remove it (bridgemil clean) and run again"
        ) from None
    return list(note["curve"]), float(note["seconds"])


def versions() -> dict[str, str]:
    """What computed the numbers."""
    from importlib.metadata import version

    return {name: version(name) for name in ("bridgemil", "torch", "numpy")}
