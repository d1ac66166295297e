"""The methods and the ablations as data: which Stage 1, which aggregator, which settings; and the settings of a run.

A run's settings are the defaults, changed by the method, then by the budget, then by the user.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bridgemil.errors import BadUse
from bridgemil.learning.settings import STAGE2, Stage1Settings, Stage2Settings
from bridgemil.settings import parse

NO_BACKBONE = "none"  # of band power
STEADY_EPOCHS = 5  # warm-up and freezing, or a tenth of the epochs if that is fewer


class Settings(BaseModel):
    """Everything that decides the result of a run, but for the data, the subjects of its fold and the seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str
    backbone: str = "eegnet"
    backbone_options: dict[str, Any] = Field(default_factory=dict)
    budget: str
    stage1: Stage1Settings | None = None
    stage2: Stage2Settings

    @property
    def changed(self) -> dict[str, Any]:
        """What differs from the defaults: a setting added later, at its default, changes no identity."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        content["stage2"]["kind"] = self.stage2.kind
        return content

    @property
    def hash(self) -> str:
        """Identifies the settings."""
        return digest(self.changed)


@dataclass(frozen=True)
class Method:
    """A named recipe."""

    about: str
    stage1: Mapping[str, Any] | None
    stage2: Mapping[str, Any]


def _end_to_end(about: str, aggregator: str) -> Method:
    constant = {"optimiser": "adam", "schedule": "constant", "encoder_lr": None, "warmup_epochs": 0}
    return Method(
        about, None, {"kind": "bags", "aggregator": aggregator, "freeze_epochs": 0, "retention": 0.0} | constant
    )


def _two_stage(about: str, stage1: Mapping[str, Any], **stage2: Any) -> Method:
    return Method(about, stage1, {"kind": "bags", "aggregator": "attention"} | stage2)


METHODS = {
    "majority_vote": Method("windows inherit the diagnosis, and vote", None, {"kind": "windows"}),
    "additive": _end_to_end("additive MIL, end to end", "additive"),
    "attention": _end_to_end("attention MIL, end to end", "attention"),
    "millet": _end_to_end("conjunctive MIL (MILLET), end to end", "conjunctive"),
    "timemil": _end_to_end("TimeMIL, end to end", "timemil"),
    "supcon": _two_stage("supervised contrastive Stage 1, then attention", {"objective": "supcon"}),
    "masked": _two_stage("masked reconstruction, then attention", {"objective": "masked"}),
    "bridgemil": _two_stage("nearby and sub-bag alignment, then attention with retention", {"objective": "alignment"}),
    "bandpower": Method("logistic regression on band power: the floor", None, {"kind": "bandpower"}),
}
ABLATIONS = {
    "wo_variance_covariance": _two_stage("bridgemil without variance and covariance", {"variance": 0, "covariance": 0}),
    "wo_nearby": _two_stage("bridgemil without nearby windows", {"nearby": False}),
    "wo_subbag": _two_stage("bridgemil without sub-bags", {"subbag": False}),
    "wo_retention": _two_stage("bridgemil without retention, from the same Stage 1", {}, retention=0.0),
    "supervised": _two_stage("Stage 1 with inherited labels", {"objective": "supervised"}),
}


def names() -> list[str]:
    """The methods."""
    return list(METHODS)


def ablations() -> list[str]:
    """The ablations of bridgemil; they can be named wherever a method can."""
    return list(ABLATIONS)


@cache
def budgets() -> dict[str, dict[str, Any]]:
    """How long to train, by name."""
    import yaml

    content: dict[str, dict[str, Any]] = yaml.safe_load(files("bridgemil").joinpath("budgets.yaml").read_text("utf-8"))
    return content


def settings(
    method: str,
    backbone: str = "eegnet",
    budget: str = "laptop",
    burn_in: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings of a method on a backbone.

    Parameters
    ----------
    method, backbone, budget
        Names.
    burn_in
        The cohort's; reduced budgets shorten it.
    changes
        The user's own: ``{"stage1.epochs": 5}``, or nested, ``{"stage1": {"epochs": 5}}``.
    """
    recipe = _recipe(method)
    if budget not in budgets():
        raise BadUse(f"budget must be one of {', '.join(budgets())}; got {budget!r}")
    time = budgets()[budget]
    user = _nested(changes or {})
    _refuse(user)
    values: dict[str, Any] = {"method": method, "backbone": backbone, "budget": budget}
    if recipe.stage2["kind"] == "bandpower":
        values["backbone"] = NO_BACKBONE
    if recipe.stage1 is not None:
        own = dict(recipe.stage1) | time["stage1"] | _part(user, "stage1")
        values["stage1"] = {"warmup_epochs": _steady(own, "stage1")} | own
    elif "stage1" in user:
        raise BadUse(f"{method} has no Stage 1; there is nothing to set in stage1")
    own = dict(recipe.stage2) | time.get(recipe.stage2["kind"], {}) | _part(user, "stage2")
    if own["kind"] != "bandpower":
        whole = _epochs(own, "stage2")
        own = {"burn_in": min(burn_in, whole // 3) if time["reduced"] else burn_in} | own
    if recipe.stage1 is not None:
        own = {"warmup_epochs": _steady(own, "stage2"), "freeze_epochs": _steady(own, "stage2")} | own
    return parse(Settings, values | {"stage2": own} | user)


def digest(content: Any) -> str:
    """A hash of anything JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def flat(changes: Mapping[str, Any]) -> dict[str, Any]:
    """``{"stage1": {"epochs": 5}}`` as ``{"stage1.epochs": 5}``."""
    found: dict[str, Any] = {}
    for part, value in _nested(changes).items():
        found |= {f"{part}.{name}": own for name, own in value.items()} if isinstance(value, Mapping) else {part: value}
    return found


def has_setting(method: str, key: str) -> bool:
    """Whether a method has this setting: ``stage1.epochs`` has no meaning for one without a Stage 1."""
    recipe, (part, _, name) = _recipe(method), key.partition(".")
    if part == "stage1":
        return recipe.stage1 is not None and name in Stage1Settings.model_fields
    if part == "stage2":
        return name in STAGE2[recipe.stage2["kind"]].model_fields
    return part == "backbone_options" and recipe.stage2["kind"] != "bandpower"


def _recipe(method: str) -> Method:
    known = METHODS | ABLATIONS
    if method not in known:
        raise BadUse(f"method must be one of {', '.join(known)}; got {method!r}")
    return known[method]


def changed_from_budget(own: Settings, burn_in: int | None = None) -> dict[str, Any]:
    """The settings that are not as the method and budget have them: what the user set.

    ``burn_in`` is the cohort's; without it one cannot tell whether the user set another.
    """
    plain = settings(own.method, own.backbone, own.budget, burn_in or 0).model_dump(mode="json")
    found: dict[str, Any] = {}
    for part, values in own.model_dump(mode="json").items():
        if isinstance(values, dict) and isinstance(plain[part], dict):
            found |= {f"{part}.{k}": v for k, v in values.items() if plain[part].get(k) != v}
    if burn_in is None:
        found.pop("stage2.burn_in", None)
    derived = {"stage1.warmup_epochs", "stage2.warmup_epochs", "stage2.freeze_epochs"}  # follow from the epochs
    if budgets()[own.budget]["reduced"]:
        derived.add("stage2.burn_in")
    return {key: value for key, value in found.items() if key not in derived or f"{key[:6]}.epochs" not in found}


def _refuse(user: Mapping[str, Any]) -> None:
    for name in ("method", "backbone", "budget"):
        if name in user:
            raise BadUse(f"{name} is not a setting of a method; use --{name}")
    if "burn_in" in user:
        raise BadUse("set stage2.burn_in, not burn_in")
    stage2 = user.get("stage2")
    if isinstance(stage2, Mapping) and "kind" in stage2:
        raise BadUse("stage2.kind is what makes the method; choose another method instead")


def _steady(own: Mapping[str, Any], part: str) -> int:
    return min(STEADY_EPOCHS, _epochs(own, part) // 10)


def _epochs(own: Mapping[str, Any], part: str) -> int:
    value = own["epochs"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadUse(f"{part}.epochs must be a whole number, got {value!r}")
    return value


def _part(user: dict[str, Any], name: str) -> dict[str, Any]:
    value = user.pop(name, {})
    if not isinstance(value, Mapping):
        raise BadUse(f"{name} holds several settings: set {name}.epochs and so on, not {name} itself")
    return dict(value)


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``{"stage1.epochs": 5}`` as ``{"stage1": {"epochs": 5}}``."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        first, _, rest = key.partition(".")
        if rest or isinstance(value, Mapping):
            inner = nested.setdefault(first, {})
            if not isinstance(inner, dict):
                raise BadUse(f"{first} is set twice")
            inner |= _nested({rest: value}) if rest else dict(value)
        else:
            nested[key] = value
    return nested
