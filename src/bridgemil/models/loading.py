"""Reading a model that was saved. Nothing in its folder executes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bridgemil import backbones, baselines
from bridgemil.cohort.signal import Signal
from bridgemil.errors import BadData, BadUse, BridgeMILError
from bridgemil.methods import Settings
from bridgemil.models.model import ABOUT, FORMAT, WEIGHTS, BaselineModel, EnsembleModel, Model, ModelFacts, NetworkModel
from bridgemil.stored import StoredFolder
from bridgemil.stored.schema import Schema

if TYPE_CHECKING:
    from torch import nn

    from bridgemil.learning.bags import BagModel
    from bridgemil.learning.windows import WindowModel


ADVICE = "save or train it again"


class ModelFile(Schema):
    """model.json."""

    settings: dict[str, Any]
    classes: list[str] = Field(min_length=2)
    signal: dict[str, Any]
    preparation: dict[str, Any]
    seed: int
    versions: dict[str, str]
    members: list[str] | None = None
    classifier: Any = None


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
    folder = Path(folder)
    facts, about = _facts(folder)
    try:
        return _load(folder, facts, about, backbone, device)
    except BridgeMILError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise BadData(f"{folder / ABOUT}: does not fit the numbers beside it; {ADVICE}") from None


def _load(folder: Path, facts: ModelFacts, about: dict[str, Any], backbone: str | None, device: str) -> Model:
    import torch

    from bridgemil.learning import checkpoint

    if "members" in about:
        names = [_plain_name(folder, name) for name in about["members"]]
        return EnsembleModel(facts, {name: load(folder / name, backbone=backbone, device=device) for name in names})
    if not StoredFolder(folder, ADVICE).has(WEIGHTS):
        raise BadData(f"{folder / WEIGHTS}: is not there; the model is not whole")
    tensors, _ = checkpoint.read(folder / WEIGHTS, ADVICE)
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
    stored = StoredFolder(folder, ADVICE)
    if not stored.has(ABOUT):
        raise BadData(f"{folder}: no model there, or a damaged one (no {ABOUT}); {ADVICE}")
    about = stored.json(ABOUT)
    if about.get("format") != FORMAT:
        said = about.get("format")
        which = f"{said}" if isinstance(said, int) else "unknown"
        raise BadData(f"{folder}: model format {which}, this version reads {FORMAT}")
    stored.fit(ABOUT, about, ModelFile)
    try:
        facts = ModelFacts(
            Settings.model_validate(about["settings"]),
            tuple(about["classes"]),
            Signal.from_json(about["signal"]),
            about["preparation"],
            int(about["seed"]),
            about["versions"],
        )
    except (ValueError, KeyError, TypeError):
        raise stored.bad(ABOUT, "its settings or its signal are none of this version's") from None
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


def load_encoder(file: Path, settings: Settings, signal: Signal) -> nn.Module:
    """A Stage 1 encoder that a run kept, in evaluation mode on the CPU.

    Parameters
    ----------
    file
        Of a folder of runs.
    settings
        Of a run that started from it; a backbone of the user's must be the code it was trained with.
    signal
        Of the cohort's windows.
    """
    import torch

    from bridgemil.learning import checkpoint

    if not file.is_file():
        raise BadData(f"{file}: the Stage 1 encoder is not there; delete the runs that used it and run again")
    refuse_changed_code(settings, signal)
    with torch.random.fork_rng([]):
        encoder = encoder_for(settings, signal)
    try:
        encoder.load_state_dict(checkpoint.read(file)[0])
    except RuntimeError as error:
        raise BadData(f"{file}: does not fit {settings.backbone} ({str(error).splitlines()[0]})") from None
    return encoder.eval()


def build(settings: Settings, signal: Signal, n_classes: int) -> WindowModel | BagModel:
    """The network of these settings, with weights still to be loaded."""
    import torch

    from bridgemil.learning.fitting import assemble

    assert settings.stage2 is not None
    assert settings.backbone is not None
    with torch.random.fork_rng([]):
        return assemble(encoder_for(settings, signal), settings.backbone, n_classes, settings.stage2)
