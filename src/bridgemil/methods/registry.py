"""The methods, recipes, budgets and ablations as data: which Stage 1, which aggregator, how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from bridgemil import baselines, user_code
from bridgemil.errors import BadUse, one_of
from bridgemil.learning.objectives import OBJECTIVES, STAGE1
from bridgemil.learning.settings import STAGE2
from bridgemil.registry import OTHER_COLOURS, Entry

HARMONISATION = ("site_adjust", "site_column", "site_controls", "control", "adjust")  # of methods on fixed features
SHARED = (*HARMONISATION, "bags")  # what every method has, and its baselines take over
REFERENCE = "baselines.reference"  # one setting of ``bandpower``, ``tangent`` and ``covariance``
PRETRAIN_ON = "stage1.pretrain_on"  # a second cohort, of methods whose Stage 1 needs no labels
JOIN = "+"  # A+B is the ensemble of the methods A and B
# Where the user names none: what did best on the development data over all its forms (docs/results.md).
METHOD, BACKBONE, BUDGET = "tangent+bridgemil", "covariance", "laptop"
PAPER, OURS = "paper", "ours"


@dataclass(frozen=True)
class Method(Entry):
    """A named way to train a network: its entry, and what it changes in the settings of the two stages."""

    stage1: Mapping[str, Any] | None = None
    stage2: Mapping[str, Any] = field(default_factory=dict)
    as_two_stage: bool = False  # trained as Stage 2 is, though there is no Stage 1

    @property
    def kind(self) -> str:
        """Which part of a recipe it takes: ``windows``, ``end_to_end`` or ``two_stage``."""
        if self.stage2["kind"] == "windows":
            return "windows"
        return "end_to_end" if self.stage1 is None and not self.as_two_stage else "two_stage"


ATTENTION = {"kind": "bags", "aggregator": "attention"}
ALIGNMENT = {"objective": "alignment"}
FROM_SCRATCH = {"freeze_epochs": 0, "retention": 0.0}
END_TO_END = FROM_SCRATCH | {
    "kind": "bags", "optimiser": "adam", "schedule": "constant", "encoder_lr": None, "warmup_epochs": 0,
}  # fmt: skip

METHODS = {
    "majority_vote": Method(
        "classification of windows with the label of their subject, then a majority vote",
        colour="#b98200",
        marker="triangle",
        stage2={"kind": "windows"},
    ),
    "additive": Method(
        "additive MIL, end to end", colour="#c56a9c", marker="circle", stage2=END_TO_END | {"aggregator": "additive"}
    ),
    "attention": Method(
        "attention MIL, end to end", colour="#2f8fc4", marker="circle", stage2=END_TO_END | {"aggregator": "attention"}
    ),
    "millet": Method(
        "conjunctive MIL (MILLET), end to end",
        colour="#8c6bb1",
        marker="diamond",
        stage2=END_TO_END | {"aggregator": "conjunctive"},
    ),
    "timemil": Method(
        "TimeMIL, end to end", colour="#a0603a", marker="diamond", stage2=END_TO_END | {"aggregator": "timemil"}
    ),
    **{
        name: Method(
            f"{OBJECTIVES[name].description}, then attention MIL",
            colour=OBJECTIVES[name].colour,
            marker=OBJECTIVES[name].marker,
            stage1={"objective": name},
            stage2=ATTENTION,
        )
        for name in OBJECTIVES
        if OBJECTIVES[name].colour is not None
    },
    "bridgemil": Method(
        "alignment of nearby windows and of sub-bags, then attention MIL with retention",
        colour="#d55e00",
        marker="circle",
        stage1=ALIGNMENT,
        stage2=ATTENTION,
    ),
}
ABLATIONS = {
    "wo_variance_covariance": Method(
        "bridgemil without variance and covariance",
        stage1=ALIGNMENT | {"variance": 0, "covariance": 0},
        stage2=ATTENTION,
    ),
    "wo_nearby": Method("bridgemil without nearby windows", stage1=ALIGNMENT | {"nearby": False}, stage2=ATTENTION),
    "wo_subbag": Method("bridgemil without sub-bags", stage1=ALIGNMENT | {"subbag": False}, stage2=ATTENTION),
    "wo_retention": Method(
        "bridgemil without retention, from the same Stage 1", stage1=ALIGNMENT, stage2=ATTENTION | {"retention": 0.0}
    ),
    "supervised": Method("Stage 1 with inherited labels", stage1={"objective": "supervised"}, stage2=ATTENTION),
    "wo_stage1": Method("bridgemil's Stage 2 from random weights", stage2=ATTENTION | FROM_SCRATCH, as_two_stage=True),
    "random_encoder": Method(
        "bridgemil's Stage 2 on random weights that are never trained",
        stage1={"objective": "untrained", "epochs": 1, "min_steps": 100},
        stage2=ATTENTION | {"frozen": True, "retention": 0.0},
    ),
}


def names() -> list[str]:
    """Names of the methods: networks, then baselines.

    Returns
    -------
    list of str
    """
    return [*METHODS, *baselines.names()]


def ablations() -> list[str]:
    """Names of the ablations of bridgemil, which are valid wherever a method is.

    Returns
    -------
    list of str
    """
    return list(ABLATIONS)


def order(*, ablations: bool = True) -> list[str]:
    """Every name, in the order of tables; with or without the ablations."""
    return [*baselines.names(), *METHODS, *(ABLATIONS if ablations else ())]


def entry(name: str) -> Entry:
    """The description, colour and marker of a method, baseline or ablation, an ensemble or a user's own method.

    What follows ``" ("`` in the name is ignored. One without a colour gets a colour that depends on its name.
    """
    plain = name.partition(" (")[0]
    known = {**METHODS, **ABLATIONS, **{key: baselines.BASELINES[key] for key in baselines.names()}}
    found = known.get(plain, Entry(plain))
    return found if found.colour else replace(found, colour=OTHER_COLOURS[sum(plain.encode()) % len(OTHER_COLOURS)])


def colour(name: str) -> str:
    """The colour of a method in figures, hexadecimal."""
    return str(entry(name).colour)


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


def is_senseless(method: str, backbone: str) -> bool:
    """Whether a method (or a member of an ensemble) needs the samples of windows and a backbone reads features."""
    from bridgemil import backbones

    chosen = [(METHODS | ABLATIONS)[name] for name in method.split(JOIN) if name in METHODS | ABLATIONS]
    samples = any(m.stage1 is not None and OBJECTIVES[m.stage1["objective"]].needs_samples for m in chosen)
    return samples and backbones.has_front_end(backbone)


def has_setting(method: str, key: str) -> bool:
    """Whether a method has this setting: ``stage1.epochs`` has no meaning for one without a Stage 1."""
    check(method)
    part, _, name = key.partition(".")
    if JOIN in method:
        return any(has_setting(member, key) for member in method.split(JOIN))
    if key in SHARED:
        return True
    if key == REFERENCE:
        return not is_baseline(method) or "reference" in baselines.get(method).Settings.model_fields
    if is_baseline(method):
        return part == "baseline" and name in baselines.get(method).Settings.model_fields
    chosen = (METHODS | ABLATIONS)[method]
    if part == "stage1":
        if chosen.stage1 is None or (key == PRETRAIN_ON and OBJECTIVES[chosen.stage1["objective"]].needs_labels):
            return False
        return name in STAGE1[chosen.stage1["objective"]].model_fields
    if part == "stage2":
        return name in STAGE2[chosen.stage2["kind"]].model_fields
    return part == "backbone_options" or key == "frozen"


def shares(methods: Iterable[str], changes: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """For each method the changes to settings that it has, and the settings that none of them has."""
    own = {name: {key: value for key, value in changes.items() if has_setting(name, key)} for name in methods}
    return own, [key for key in changes if not any(key in share for share in own.values())]


def refuse_pretraining(methods: Sequence[str]) -> None:
    """Refuse a second cohort for Stage 1 where none of several methods can learn from subjects without labels."""
    if any(has_setting(method, PRETRAIN_ON) for method in methods):
        return
    chosen = [(METHODS | ABLATIONS).get(name) for method in methods for name in method.split(JOIN)]
    supervised = any(one is not None and one.stage1 is not None for one in chosen)
    why = "trains Stage 1 with labels, which a second cohort's subjects do not have" if supervised else "has no Stage 1"
    possible = ", ".join(name for name in METHODS if has_setting(name, PRETRAIN_ON))
    raise BadUse(f"{', '.join(methods)} {why}: --pretrain-on is for {possible} and ensembles with them")


def fixed(method: str) -> set[str]:
    """The settings that make an ablation what it is: ``stage2.retention`` of ``wo_retention``. None of a method."""
    if JOIN in method:
        return set().union(*(fixed(member) for member in method.split(JOIN)))
    if method not in ABLATIONS:
        return set()
    ablation = ABLATIONS[method]
    keys = {f"stage1.{name}" for name in ablation.stage1 or ()} | {f"stage2.{name}" for name in ablation.stage2}
    keys.discard("stage2.aggregator")  # bridgemil's own: set by the user, it applies to both
    if ablation.stage1 is not None and ablation.stage1["objective"] == "untrained":
        keys.add("stage1.weight_decay")  # nothing may change a weight
    return keys


def is_baseline(method: str) -> bool:
    """Whether a name is that of a baseline, or the address of a scikit-learn pipeline."""
    return method in baselines.names() or user_code.is_address(method)


def check(method: str) -> None:
    """Refuse a name that is no method, and an ensemble that is none."""
    members = method.split(JOIN)
    for name in members:
        if not user_code.is_address(name):
            more = ", or your own scikit-learn pipeline, path/to/file.py:NAME (or several joined by +)"
            one_of("method", name, [*names(), *ABLATIONS], more)
    if len({user_code.short_name(name) for name in members}) < len(members):
        raise BadUse(f"method {method}: a member is named twice")
