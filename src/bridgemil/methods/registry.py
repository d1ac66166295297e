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
NETWORKS = METHODS | ABLATIONS


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
    return [*baselines.names(), *(NETWORKS if ablations else METHODS)]


def entry(name: str) -> Entry:
    """The description, colour and marker of a method, baseline or ablation, an ensemble or a user's own method.

    What follows ``" ("`` in the name is ignored. One without a colour gets a colour that depends on its name.
    """
    plain = name.partition(" (")[0]
    known: dict[str, Entry] = {**NETWORKS, **baselines.BASELINES}
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

    stages = [NETWORKS[name].stage1 for name in method.split(JOIN) if name in NETWORKS]
    samples = any(stage1 is not None and OBJECTIVES[stage1["objective"]].needs_samples for stage1 in stages)
    return samples and backbones.has_front_end(backbone)


def setting_names(method: str) -> list[str]:
    """The settings of a method, as ``stage1.epochs``; a network has those of its backbone too, any at this point."""
    check(method)
    if JOIN in method:
        return list(dict.fromkeys(key for member in method.split(JOIN) for key in setting_names(member)))
    if is_baseline(method):
        own = [f"baseline.{name}" for name in baselines.get(method).Settings.model_fields]
        return [*own, *SHARED, *([REFERENCE] if "baseline.reference" in own else [])]
    stage1, stage2, left_out = NETWORKS[method].stage1, NETWORKS[method].stage2, ["stage1.objective", "stage2.kind"]
    own = [f"stage2.{name}" for name in STAGE2[stage2["kind"]].model_fields]
    if stage1 is not None:
        own += [f"stage1.{name}" for name in STAGE1[stage1["objective"]].model_fields]
        left_out += [PRETRAIN_ON] if OBJECTIVES[stage1["objective"]].needs_labels else []
    return [*(key for key in own if key not in left_out), *SHARED, REFERENCE, "frozen"]


def has_setting(method: str, key: str) -> bool:
    """Whether a method has this setting: ``stage1.epochs`` has no meaning for one without a Stage 1."""
    known = setting_names(method)
    return key in known or ("frozen" in known and key.startswith("backbone_options."))


def shares(methods: Iterable[str], changes: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """For each method the changes to settings that it has, and the settings that none of them has."""
    own = {name: {key: value for key, value in changes.items() if has_setting(name, key)} for name in methods}
    return own, [key for key in changes if not any(key in share for share in own.values())]


def refuse_pretraining(methods: Sequence[str]) -> None:
    """Refuse a second cohort for Stage 1 where none of several methods can learn from subjects without labels."""
    if not any(has_setting(method, PRETRAIN_ON) for method in methods):
        possible = ", ".join(name for name in METHODS if has_setting(name, PRETRAIN_ON))
        raise BadUse(
            f"{', '.join(methods)} has no Stage 1 that learns without labels, which a second cohort's subjects do not "
            f"have: --pretrain-on is for {possible} and ensembles with them"
        )


def fixed(method: str) -> set[str]:
    """The settings that make an ablation what it is: ``stage2.retention`` of ``wo_retention``. None of a method."""
    keys: set[str] = set()
    for ablation in (ABLATIONS[name] for name in method.split(JOIN) if name in ABLATIONS):
        stage1 = ablation.stage1 or {}
        keys |= {f"stage1.{name}" for name in stage1} | {f"stage2.{name}" for name in ablation.stage2}
        keys |= {"stage1.weight_decay"} if stage1.get("objective") == "untrained" else set()  # no weight may change
    return keys - {"stage2.aggregator"}  # bridgemil's own: set by the user, it applies to both


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
