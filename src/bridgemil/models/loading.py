"""Reading a model that was saved. Nothing in its folder executes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bridgemil import backbones, baselines
from bridgemil.cohort.signal import Signal
from bridgemil.errors import BadData, BadUse
from bridgemil.methods import Settings
from bridgemil.models.harmonisation import Harmonisation
from bridgemil.models.model import (
    FROZEN,
    KIND,
    METADATA,
    WEIGHTS,
    BaselineModel,
    EnsembleModel,
    Model,
    ModelFacts,
    NetworkModel,
)
from bridgemil.storage.artifact import Artifact
from bridgemil.user_code import absolute, fingerprint

if TYPE_CHECKING:
    from torch import Tensor, nn

ADVICE = "save or train it again"


def load(folder: str | Path, *, backbone: str | None = None, device: str = "cpu") -> Model:
    """Read a model written by ``save``, such as the one in the folder of a run.

    Parameters
    ----------
    folder : str or Path
        Its folder.
    backbone : str, optional
        Address (``net.py:Tiny``) or registered name of the user-defined backbone, if it was trained with one. A folder
        contains no code.
    device : str, default "cpu"
        Where to predict.

    Returns
    -------
    Model
    """
    return read_model(Artifact.open(Path(folder), KIND, ADVICE), "", backbone=backbone, device=device)


def read_model(
    artifact: Artifact,
    below: str = "",
    *,
    backbone: str | None = None,
    device: str = "cpu",
    frozen: Mapping[str, Tensor] | None = None,
) -> Model:
    """Read a model that is part of an artifact (a run, a bundle, a classifier), in its folder ``below`` (with ``/``).

    ``backbone`` and ``device`` as of ``load``. A frozen encoder's weights are in the artifact, or in their file.
    """
    import torch

    from bridgemil.learning.checkpoint import by_part, read_tensors
    from bridgemil.learning.networks import assemble

    if f"{below}{FROZEN}" in artifact.files:
        frozen = read_tensors(artifact.path(f"{below}{FROZEN}"))
    metadata = artifact.json(f"{below}{METADATA}")
    try:
        facts = ModelFacts.from_json(metadata)
    except ValidationError:
        raise artifact.bad(METADATA, "has settings that this version does not know") from None
    if "members" in metadata:
        how: dict[str, Any] = {"backbone": backbone, "device": device, "frozen": frozen}
        return EnsembleModel(facts, {n: read_model(artifact, f"{below}{n}/", **how) for n in metadata["members"]})
    settings = facts.settings
    if settings.address is not None:
        raise BadUse(f"{settings.method} is a pipeline of the user's own, and what it learnt was not stored")
    tensors = read_tensors(artifact.path(f"{below}{WEIGHTS}"))
    harmonisation = None
    if "harmonisation" in metadata:
        arrays = {name: tensors.pop(name).numpy() for name in list(tensors) if name.startswith("harmonisation.")}
        harmonisation = Harmonisation.from_stored(metadata["harmonisation"], arrays)
    if not settings.is_network:
        from bridgemil.baselines.classifiers import rebuild

        baseline = baselines.create(settings.source, settings.baseline or {}, facts.signal)
        numbers = {name: value.numpy() for name, value in tensors.items()}
        return BaselineModel(facts, baseline, rebuild(metadata["classifier"], numbers), harmonisation)
    chosen = _backbone(settings, facts.signal, backbone)
    assert chosen.backbone is not None
    assert chosen.stage2 is not None
    with torch.random.fork_rng([]):
        encoder = encoder_for(chosen, facts.signal, frozen)
        network = assemble(encoder, chosen.backbone, len(facts.classes), chosen.stage2)
    load_weights(network, by_part(tensors)["network"], f"{artifact.root / below / WEIGHTS}: does not fit its settings")
    scale = (tensors["scale.mean"].numpy(), tensors["scale.std"].numpy()) if "scale.mean" in tensors else None
    where = torch.device(device)
    return NetworkModel(facts, network.to(where).eval(), scale, where, harmonisation)


def _backbone(settings: Settings, signal: Signal, given: str | None) -> Settings:
    """The settings with the backbone to build; the user's own code only if the user names it."""
    if settings.code is None:
        return settings
    if given is None:
        raise BadUse(
            f"the model was trained with code that is not bridgemil's ({settings.backbone}), and a folder never makes "
            "code run: name it again, backbone=…"
        )
    name = absolute(given)
    if backbones.try_out(name, signal, settings.encoder_options) != settings.code:
        raise BadData(f"{given}: is not the code the model was trained with, or has changed since")
    return settings.model_copy(update={"backbone": name})


def refuse_changed_code(settings: Settings, signal: Signal) -> None:
    """A run's name holds the fingerprint of the user's code: other code must not train under it."""
    name = settings.backbone or settings.address
    if settings.code is None or name is None:
        return
    own = settings.backbone is None
    if settings.code != (fingerprint(name) if own else backbones.try_out(name, signal, settings.encoder_options)):
        raise BadData(f"{name}: has changed since this run was planned; run the same command again")


def encoder_for(settings: Settings, signal: Signal, weights: Mapping[str, Tensor] | None = None) -> nn.Module:
    """A new encoder, drawn from torch's generator; a frozen one has these weights, or those of its file."""
    assert settings.backbone is not None
    if not settings.frozen:
        return backbones.for_signal(settings.backbone, signal, settings.backbone_options)
    from bridgemil.learning.frozen import frozen_encoder

    which = settings.backbone, signal, settings.encoder_options, settings.code
    made = frozen_encoder(*which, settings.weights_file if weights is None else weights)
    if made.front_end.checksum != settings.weights:
        raise BadData(
            f"{settings.weights_file or settings.backbone}: the weights of the frozen encoder are not those this model "
            "or run was planned with; put them back, or run the same command again"
        )
    return made


def build_encoder(tensors: dict[str, Tensor], settings: Settings, signal: Signal) -> nn.Module:
    """A stored Stage 1 encoder with these weights, in evaluation mode on the CPU.

    ``settings`` are those of a run that started from it; a backbone of the user's must be the code it was trained with.
    """
    import torch

    refuse_changed_code(settings, signal)
    with torch.random.fork_rng([]):
        encoder = encoder_for(settings, signal)
    load_weights(encoder, tensors, f"the stored encoder does not fit {settings.backbone}")
    return encoder.eval()


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], refusal: str) -> None:
    """Put stored weights into a module; those of another one are refused."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise BadData(f"{refusal} ({str(error).splitlines()[0]}); remove it and run again") from None
