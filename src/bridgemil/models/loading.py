"""Reading a model that was saved. Nothing in its folder executes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil import backbones, baselines
from bridgemil.cohort.signal import Signal
from bridgemil.errors import BadData, BadUse
from bridgemil.methods import Settings
from bridgemil.models.model import ABOUT, FORMAT, WEIGHTS, BaselineModel, EnsembleModel, Model, ModelFacts, NetworkModel

if TYPE_CHECKING:
    from torch import nn

    from bridgemil.learning.bags import BagModel
    from bridgemil.learning.windows import WindowModel


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


def refuse_changed_code(settings: Settings, signal: Signal) -> None:
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
