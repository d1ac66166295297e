"""The methods, recipes and ablations as data: which Stage 1, which aggregator, which settings; the settings of a run.

A network's settings are the defaults, changed by the method, then by the recipe, the budget and the user. A baseline
has settings of its own, and neither backbone, recipe nor budget.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from bridgemil import aggregators, baselines
from bridgemil.errors import BadUse, one_of
from bridgemil.learning.settings import STAGE1, STAGE2, Stage1Settings, Stage2Settings
from bridgemil.settings import parse

if TYPE_CHECKING:
    from bridgemil.cohort.store import Cohort

JOIN = "+"  # A+B is the ensemble of the methods A and B
STEADY_EPOCHS = 5  # warm-up and freezing, or a tenth of the epochs if that is fewer
# Where the user names none: what did best on the development data over all its forms (docs/results.md).
METHOD, BACKBONE, BUDGET = "tangent+bridgemil", "covariance", "laptop"
PAPER, OURS = "paper", "ours"


class Settings(BaseModel):
    """Everything that decides the result of a run, but for the data, the subjects of its fold and the seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str
    backbone: str | None = None
    backbone_options: dict[str, Any] = Field(default_factory=dict)
    code: str | None = Field(None, description="fingerprint of a backbone or baseline that is not ours")
    recipe: str = PAPER
    budget: str | None = None
    stage1: Stage1Settings | None = None
    stage2: Stage2Settings | None = None
    baseline: dict[str, Any] | None = None
    members: tuple[Settings, ...] = Field((), description="of an ensemble, whose own settings are its members'")

    @property
    def is_network(self) -> bool:
        """Whether something is trained by steps; a baseline is not."""
        return self.stage2 is not None

    @property
    def each(self) -> tuple[Settings, ...]:
        """An ensemble's members; of anything else, itself."""
        return self.members or (self,)

    @property
    def changed(self) -> dict[str, Any]:
        """What differs from the defaults: a setting added later, at its default, changes no identity."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        if self.code is not None and self.backbone is not None:
            content["backbone"] = short_name(self.backbone)  # the code says what it is: a moved folder changes nothing
        if self.members:
            content["members"] = [member.changed for member in self.members]
        if self.stage1 is not None:
            content["stage1"]["objective"] = self.stage1.objective
        if self.stage2 is not None:
            content["stage2"]["kind"] = self.stage2.kind
        return content

    @property
    def hash(self) -> str:
        """Identifies the settings."""
        return digest(self.changed)

    @property
    def title(self) -> str:
        """In words: method and backbone."""
        return self.method if self.backbone is None else f"{self.method}, {short_name(self.backbone)}"


def short_name(backbone: str) -> str:
    """A backbone's name for people: of a user's file its last part, ``net.py:Tiny``."""
    return backbone.replace("\\", "/").rpartition("/")[2]


@dataclass(frozen=True)
class Method:
    """A named way to train a network."""

    about: str
    stage1: Mapping[str, Any] | None
    stage2: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Which part of a recipe it takes: ``windows``, ``end_to_end`` or ``two_stage``."""
        if self.stage2["kind"] == "windows":
            return "windows"
        return "end_to_end" if self.stage1 is None else "two_stage"


def _end_to_end(about: str, aggregator: str) -> Method:
    constant = {"optimiser": "adam", "schedule": "constant", "encoder_lr": None, "warmup_epochs": 0}
    return Method(
        about, None, {"kind": "bags", "aggregator": aggregator, "freeze_epochs": 0, "retention": 0.0} | constant
    )


def _two_stage(about: str, stage1: Mapping[str, Any], **stage2: Any) -> Method:
    return Method(
        about, {"objective": "alignment"} | dict(stage1), {"kind": "bags", "aggregator": "attention"} | stage2
    )


METHODS = {
    "majority_vote": Method("windows inherit the diagnosis, and vote", None, {"kind": "windows"}),
    "additive": _end_to_end("additive MIL, end to end", "additive"),
    "attention": _end_to_end("attention MIL, end to end", "attention"),
    "millet": _end_to_end("conjunctive MIL (MILLET), end to end", "conjunctive"),
    "timemil": _end_to_end("TimeMIL, end to end", "timemil"),
    "supcon": _two_stage("supervised contrastive Stage 1, then attention", {"objective": "supcon"}),
    "masked": _two_stage("masked reconstruction, then attention", {"objective": "masked"}),
    "bridgemil": _two_stage("nearby and sub-bag alignment, then attention with retention", {}),
}
ABLATIONS = {
    "wo_variance_covariance": _two_stage("bridgemil without variance and covariance", {"variance": 0, "covariance": 0}),
    "wo_nearby": _two_stage("bridgemil without nearby windows", {"nearby": False}),
    "wo_subbag": _two_stage("bridgemil without sub-bags", {"subbag": False}),
    "wo_retention": _two_stage("bridgemil without retention, from the same Stage 1", {}, retention=0.0),
    "supervised": _two_stage("Stage 1 with inherited labels", {"objective": "supervised"}),
}


def names() -> list[str]:
    """The methods: networks, then baselines."""
    return [*METHODS, *baselines.names()]


def ablations() -> list[str]:
    """The ablations of bridgemil; they can be named wherever a method can."""
    return list(ABLATIONS)


def order() -> list[str]:
    """Every name, in the order of tables."""
    return [*baselines.names(), *METHODS, *ABLATIONS]


@cache
def budgets() -> dict[str, dict[str, Any]]:
    """How long to train, by name."""
    return _yaml("budgets.yaml")


@cache
def recipes() -> dict[str, dict[str, Any]]:
    """How to train, by name: ``paper`` changes nothing, ``ours`` does."""
    return _yaml("recipes.yaml")


def _yaml(name: str) -> dict[str, dict[str, Any]]:
    import yaml

    content: dict[str, dict[str, Any]] = yaml.safe_load(files("bridgemil").joinpath(name).read_text("utf-8"))
    return content


def recipe_for(budget: str) -> str:
    """The recipe where the user names none: the paper's with the paper's budget, ours with the others."""
    return PAPER if budget == PAPER else OURS


def settings(
    method: str,
    backbone: str = "eegnet",
    budget: str = BUDGET,
    burn_in: int = 0,
    changes: Mapping[str, Any] | None = None,
    *,
    recipe: str = PAPER,
    code: str | None = None,
) -> Settings:
    """The settings of a method.

    Parameters
    ----------
    method, backbone, budget, recipe
        Names. A baseline has no use for the last three.
    burn_in
        The cohort's; reduced budgets shorten it.
    changes
        The user's own: ``{"stage1.epochs": 5}``, or nested, ``{"stage1": {"epochs": 5}}``.
    code
        Fingerprint of a backbone or baseline that is not ours.
    """
    check(method)
    one_of("budget", budget, budgets())
    one_of("recipe", recipe, recipes())
    _refuse(_nested(changes or {}))
    if JOIN in method:
        shares = _shares(method, changes or {})
        return _joined([settings(name, backbone, budget, burn_in, shares[name], recipe=recipe) for name in shares])
    user = _nested(changes or {})
    if method in baselines.names():
        return _baseline_settings(method, user, code)
    return _network_settings(method, backbone, budget, recipe, burn_in, user, code)


def _joined(members: list[Settings]) -> Settings:
    """An ensemble; its backbone, recipe and budget are its networks'."""
    network = next((member for member in members if member.is_network), None)
    shared = {} if network is None else {name: getattr(network, name) for name in ("backbone", "recipe", "budget")}
    return Settings(method=JOIN.join(member.method for member in members), members=tuple(members), **shared)


def _shares(method: str, changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each member of an ensemble, the user's changes that concern it."""
    user = flat(changes)
    shares = {name: {key: user[key] for key in user if has_setting(name, key)} for name in method.split(JOIN)}
    for key in user:
        if not any(key in share for share in shares.values()):
            raise BadUse(f"no member of {method} has a setting {key}")
    return shares


def _baseline_settings(method: str, user: dict[str, Any], code: str | None) -> Settings:
    values = _part(user, "baseline")
    for part in user:
        raise BadUse(f"{method} is no network; there is nothing to set in {part} (its own settings: baseline.…)")
    checked = parse(baselines.get(method).Settings, values, prefix="baseline")
    return Settings(method=method, code=code, baseline=checked.model_dump(mode="json", exclude_defaults=True))


def _network_settings(
    method: str, backbone: str, budget: str, recipe: str, burn_in: int, user: dict[str, Any], code: str | None
) -> Settings:
    chosen, manner = (METHODS | ABLATIONS)[method], recipes()[recipe]
    time = budgets()[budget] | manner.get("budgets", {}).get(budget, {})  # a recipe may count its own steps
    values: dict[str, Any] = {
        "method": method, "backbone": backbone, "code": code, "budget": budget, "recipe": recipe,
    }  # fmt: skip
    if "baseline" in user:
        raise BadUse(f"{method} is a network; there is nothing to set in baseline")
    if chosen.stage1 is not None:
        known = STAGE1[chosen.stage1["objective"]].model_fields
        manner1 = {key: value for key, value in (manner.get("stage1", {}) | time["stage1"]).items() if key in known}
        stage1 = dict(chosen.stage1) | manner1 | _so_long(_part(user, "stage1"))
        values["stage1"] = {"warmup_epochs": _steady(stage1, "stage1")} | stage1
    elif "stage1" in user:
        raise BadUse(f"{method} has no Stage 1; there is nothing to set in stage1")
    # What makes the method (its aggregator, an ablation's zero) is not the recipe's to change.
    fixed = {key: chosen.stage2[key] for key in ("kind", "aggregator") if key in chosen.stage2}
    if method in ABLATIONS:
        fixed = dict(chosen.stage2)
    mine = _so_long(_part(user, "stage2"))
    usual = dict(manner.get(chosen.kind, {}))
    if mine.get("aggregator", chosen.stage2.get("aggregator")) not in aggregators.WITH_POSITIONS:
        # It has no positions to leave out; TimeMIL reads windows in order, and its transformer bears no high rate.
        usual = {key: value for key, value in usual.items() if key in ("averaging", "selection")}
    stage2 = dict(chosen.stage2) | usual | fixed | time[chosen.stage2["kind"]] | mine
    whole = _epochs(stage2, "stage2")
    stage2 = {"burn_in": min(burn_in, whole // 3) if time["reduced"] else burn_in} | stage2
    if chosen.stage1 is not None:
        stage2 = {"warmup_epochs": _steady(stage2, "stage2"), "freeze_epochs": _steady(stage2, "stage2")} | stage2
    return parse(Settings, values | {"stage2": stage2} | user)


def for_cohort(
    cohort: Cohort,
    method: str,
    backbone: str = BACKBONE,
    budget: str = BUDGET,
    changes: Mapping[str, Any] | None = None,
    *,
    recipe: str | None = None,
) -> Settings:
    """The settings of a method on a cohort, with everything refused now that would be refused later.

    Names, options and shapes are tried out here, before any work; code that is not ours enters with its fingerprint.
    """
    from bridgemil import backbones

    check(method)
    recipe = recipe or recipe_for(budget)
    _refuse(_nested(changes or {}))
    if JOIN in method:
        shares = _shares(method, changes or {})
        return _joined([for_cohort(cohort, name, backbone, budget, shares[name], recipe=recipe) for name in shares])
    if method in baselines.names():
        made = settings(method, burn_in=cohort.burn_in, changes=changes, code=baselines.fingerprint(method))
        baselines.create(method, made.baseline or {}, cohort.signal)
        return made
    backbone = backbones.absolute(backbone)
    made = settings(method, backbone, budget, cohort.burn_in, changes, recipe=recipe)
    code = backbones.try_out(backbone, cohort.signal, made.backbone_options)
    if is_senseless(method, backbone):
        raise BadUse(
            f"{method}: {backbone} is a fixed front end and a linear layer; there are no samples to hide and predict"
        )
    return made if code is None else made.model_copy(update={"code": code})


def is_senseless(method: str, backbone: str) -> bool:
    """Whether a method (or a member of an ensemble) would have to mask samples that a backbone does not have."""
    from bridgemil import backbones

    chosen = [(METHODS | ABLATIONS)[name] for name in method.split(JOIN) if name in METHODS | ABLATIONS]
    masked = any(member.stage1 is not None and member.stage1["objective"] == "masked" for member in chosen)
    return masked and backbones.has_front_end(backbone)


def digest(content: Any) -> str:
    """A hash of anything JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def flat(changes: Mapping[str, Any]) -> dict[str, Any]:
    """``{"stage1": {"epochs": 5}}`` as ``{"stage1.epochs": 5}``."""
    pairs: dict[str, Any] = {}
    for part, value in _nested(changes).items():
        pairs |= {f"{part}.{name}": inner for name, inner in value.items()} if isinstance(value, Mapping) else {
            part: value
        }  # fmt: skip
    return pairs


def has_setting(method: str, key: str) -> bool:
    """Whether a method has this setting: ``stage1.epochs`` has no meaning for one without a Stage 1."""
    check(method)
    part, _, name = key.partition(".")
    if JOIN in method:
        return any(has_setting(member, key) for member in method.split(JOIN))
    if method in baselines.names():
        return part == "baseline" and name in baselines.get(method).Settings.model_fields
    chosen = (METHODS | ABLATIONS)[method]
    if part == "stage1":
        return chosen.stage1 is not None and name in STAGE1[chosen.stage1["objective"]].model_fields
    if part == "stage2":
        return name in STAGE2[chosen.stage2["kind"]].model_fields
    return part == "backbone_options"


def check(method: str) -> None:
    """Refuse a name that is no method, and an ensemble that is none."""
    members = method.split(JOIN)
    for name in members:
        one_of("method", name, [*names(), *ABLATIONS], " (or several joined by +)")
    if len(set(members)) < len(members):
        raise BadUse(f"method {method}: a member is named twice")


def changed_from_budget(chosen: Settings, burn_in: int | None = None) -> dict[str, Any]:
    """The settings that are not as the method, recipe and budget have them: what the user set.

    ``burn_in`` is the cohort's; without it one cannot tell whether the user set another.
    """
    if chosen.members:
        return {
            f"{member.method}: {key}": value
            for member in chosen.members
            for key, value in changed_from_budget(member, burn_in).items()
        }
    if not chosen.is_network:
        return {f"baseline.{key}": value for key, value in (chosen.baseline or {}).items()}
    assert chosen.backbone is not None
    assert chosen.budget is not None
    usual = settings(chosen.method, chosen.backbone, chosen.budget, burn_in or 0, recipe=chosen.recipe)
    plain, changed = usual.model_dump(mode="json"), dict[str, Any]()
    for part, values in chosen.model_dump(mode="json").items():
        if isinstance(values, dict) and isinstance(plain[part], dict):
            changed |= {f"{part}.{k}": v for k, v in values.items() if plain[part].get(k) != v}
    if burn_in is None:
        changed.pop("stage2.burn_in", None)
    derived = {
        f"{part}.{name}" for part in ("stage1", "stage2") for name in ("warmup_epochs", "freeze_epochs", "min_steps")
    }
    if budgets()[chosen.budget]["reduced"]:
        derived.add("stage2.burn_in")  # these follow from the epochs
    return {
        key: value
        for key, value in changed.items()
        if key not in derived or f"{key.partition('.')[0]}.epochs" not in changed
    }


def _refuse(user: Mapping[str, Any]) -> None:
    for name in ("method", "backbone", "budget", "recipe"):
        if name in user:
            raise BadUse(f"{name} is not a setting of a method; use --{name}")
    if "code" in user:
        raise BadUse("code is not a setting: it is the fingerprint of your own backbone")
    if "burn_in" in user:
        raise BadUse("set stage2.burn_in, not burn_in")
    for part, name in (("stage1", "objective"), ("stage2", "kind")):
        values = user.get(part)
        if isinstance(values, Mapping) and name in values:
            raise BadUse(f"{part}.{name} is what makes the method; choose another method instead")


def _so_long(mine: dict[str, Any]) -> dict[str, Any]:
    """Who sets the epochs means them: no floor of steps unless it is set too."""
    return {"min_steps": 0} | mine if "epochs" in mine else mine


def _steady(values: Mapping[str, Any], part: str) -> int:
    return min(STEADY_EPOCHS, _epochs(values, part) // 10)


def _epochs(values: Mapping[str, Any], part: str) -> int:
    value = values["epochs"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadUse(f"{part}.epochs must be a whole number, got {value!r}")
    return value


def _part(user: dict[str, Any], name: str) -> dict[str, Any]:
    value = user.pop(name, {})
    if not isinstance(value, Mapping):
        raise BadUse(f"{name} holds several settings: set {name}.epochs and so on, not {name} itself")
    return dict(value)


def _nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    """``{"stage1.epochs": 5}`` as ``{"stage1": {"epochs": 5}}``."""
    nested: dict[str, Any] = {}
    for key, value in changes.items():
        first, _, rest = key.partition(".")
        if rest or isinstance(value, Mapping):
            inner = nested.setdefault(first, {})
            if not isinstance(inner, dict):
                raise BadUse(f"{first} is set twice")
            inner |= _nested({rest: value}) if rest else dict(value)
        else:
            nested[key] = value
    return nested
