"""From a method, a recipe, a budget and what the user sets, ``{"stage1.epochs": 5}``, to the settings of a run."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgemil import aggregators, backbones, baselines
from bridgemil.cohort.tables import control_classes
from bridgemil.errors import BadUse, did_you_mean, one_of
from bridgemil.learning.objectives import STAGE1
from bridgemil.learning.settings import BagSettings, with_min_steps
from bridgemil.methods.registry import (
    ABLATIONS,
    BACKBONE,
    BUDGET,
    JOIN,
    METHODS,
    NETWORKS,
    PAPER,
    REFERENCE,
    budgets,
    check,
    is_baseline,
    is_senseless,
    recipe_for,
    recipes,
    setting_names,
    shares,
)
from bridgemil.methods.run_settings import Settings
from bridgemil.settings import parse
from bridgemil.user_code import absolute, is_address, short_name

if TYPE_CHECKING:
    from bridgemil.cohort.cohort import Cohort

STEADY_EPOCHS = 5  # warm-up and freezing, or a tenth of the epochs if that is fewer
NO_SETTINGS = {  # what a user might set, and should write instead
    **{name: f"use --{name}" for name in ("method", "backbone", "budget", "recipe")},
    **dict.fromkeys(("members", "tune", "candidates"), "values to choose from are given with --tune"),
    **dict.fromkeys(("stage1.objective", "stage2.kind"), "it makes the method; choose another method instead"),
    "address": "name your pipeline with --method",
    "code": "it is the fingerprint of your own backbone",
    "weights": "set backbone_options.weights=FILE, the weights of an encoder that is --frozen",
    "burn_in": "set stage2.burn_in",
}


def flat(changes: Mapping[str, Any]) -> dict[str, Any]:
    """``{"stage1": {"epochs": 5}}`` as ``{"stage1.epochs": 5}``."""
    pairs: dict[str, Any] = {}
    for key, value in changes.items():
        is_part = isinstance(value, Mapping) and "." not in key
        pairs |= {f"{key}.{name}": own for name, own in value.items()} if is_part else {key: value}
    return pairs


def settings(
    method: str,
    backbone: str = "eegnet",
    budget: str = BUDGET,
    burn_in: int = 0,
    changes: Mapping[str, Any] | None = None,
    *,
    recipe: str = PAPER,
) -> Settings:
    """The settings of a method, without a cohort.

    Parameters
    ----------
    method, backbone, budget, recipe : str
        Names. Baselines use the method alone.
    burn_in : int
        The cohort's; reduced budgets shorten it.
    changes : mapping, optional
        Of the user: ``{"stage1.epochs": 5}``, or nested, ``{"stage1": {"epochs": 5}}``.
    """
    check(method)
    one_of("budget", budget, budgets())
    one_of("recipe", recipe, recipes())
    user = flat(changes or {})
    for name in (name for key in user for name in (key, key.partition(".")[0]) if name in NO_SETTINGS):
        raise BadUse(f"{name} is no setting; {NO_SETTINGS[name]}")
    own, unused = shares(method.split(JOIN), user)
    for key in unused:
        every = setting_names(method)
        near = [name for name in every if name.partition(".")[0] == key.partition(".")[0]]
        hint = ("." in key and did_you_mean(key, near)) or f"; the settings are {', '.join(near or every)}"
        raise BadUse(f"{method} has no setting {key}{hint}")
    if JOIN in method:
        members = tuple(settings(name, backbone, budget, burn_in, own[name], recipe=recipe) for name in own)
        network = next((member for member in members if member.is_network), None)
        shared = {} if network is None else {name: getattr(network, name) for name in ("backbone", "recipe", "budget")}
        return Settings(method=JOIN.join(member.method for member in members), members=members, **shared)
    if REFERENCE in user:  # the baseline's own setting, or an option of the backbone
        if not is_baseline(method) and backbone != "covariance":
            raise BadUse(
                f"{backbone} works on the windows as they are prepared: {REFERENCE} is a setting of bandpower, tangent "
                "and covariance; use prepare --reference average"
            )
        user["baseline.reference" if is_baseline(method) else "backbone_options.reference"] = user.pop(REFERENCE)
    if is_baseline(method):
        return _baseline_settings(method, user)
    return _network_settings(method, backbone, budget, recipe, burn_in, user)


def _part(user: dict[str, Any], name: str) -> dict[str, Any]:
    """Take out the settings of one part, ``stage1.epochs`` as ``epochs``."""
    return {key.removeprefix(f"{name}."): user.pop(key) for key in [*user] if key.startswith(f"{name}.")}


def _baseline_settings(method: str, user: dict[str, Any]) -> Settings:
    checked = parse(baselines.get(method).Settings, _part(user, "baseline"), prefix="baseline")
    own = checked.model_dump(mode="json", exclude_defaults=True)
    address = absolute(method) if is_address(method) else None
    return parse(Settings, {"method": short_name(method), "address": address, "baseline": own} | user)


def _network_settings(
    method: str, backbone: str, budget: str, recipe: str, burn_in: int, user: dict[str, Any]
) -> Settings:
    chosen, manner = NETWORKS[method], recipes()[recipe]
    time = budgets()[budget] | manner.get("budgets", {}).get(budget, {})  # a recipe may count its own steps
    values: dict[str, Any] = {"method": method, "backbone": backbone, "budget": budget, "recipe": recipe}
    mine1, mine2, options = (_part(user, name) for name in ("stage1", "stage2", "backbone_options"))
    values["backbone_options"] = _frozen_options(method, options) if user.get("frozen") else options
    for mine in (mine1, mine2):
        if "epochs" in mine:
            mine.setdefault("min_steps", 0)  # setting the epochs disables the minimum, unless that is set too
    if chosen.stage1 is not None:
        known = STAGE1[chosen.stage1["objective"]].model_fields
        usual = manner.get("stage1", {}) | time["stage1"]
        stage1 = {k: v for k, v in usual.items() if k in known and k != "max_steps"}
        stage1 |= dict(chosen.stage1) | mine1
        values["stage1"] = {"warmup_epochs": _steady_epochs(stage1, "stage1")} | stage1
    # What makes the method (its aggregator, an ablation's zero) is not the recipe's to change.
    fixed = {k: v for k, v in chosen.stage2.items() if method in ABLATIONS or k in ("kind", "aggregator")}
    usual = dict(manner.get(chosen.kind, {}))
    if mine2.get("aggregator", chosen.stage2.get("aggregator")) not in aggregators.with_positions():
        # It has no positions to leave out; TimeMIL reads windows in order, and its transformer bears no high rate.
        usual = {key: value for key, value in usual.items() if key in ("averaging", "selection")}
    usual |= fixed | {k: v for k, v in time[chosen.stage2["kind"]].items() if k != "max_steps"}
    stage2 = dict(chosen.stage2) | usual | mine2
    steady = _steady_epochs(stage2, "stage2")
    derived = {"burn_in": min(burn_in, stage2["epochs"] // 3) if time["reduced"] else burn_in}
    if chosen.kind == "two_stage":
        derived |= {"warmup_epochs": steady, "freeze_epochs": steady}
    return parse(Settings, values | {"stage2": derived | stage2} | user)


def _frozen_options(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The backbone's options where its encoder is never trained, the file of its weights by an absolute path."""
    if NETWORKS[method].stage1 is not None:
        possible = ", ".join(name for name in METHODS if METHODS[name].stage1 is None)
        raise BadUse(f"{method} trains the encoder in Stage 1; with --frozen, --method must be one of {possible}")
    if options.get("weights") is None:
        return options
    path = os.path.abspath(Path(str(options["weights"])).expanduser())  # noqa: PTH100 (links stay)
    return options | {"weights": path}


def _steady_epochs(values: Mapping[str, Any], part: str) -> int:
    """Epochs of warm-up and of freezing; the number of epochs is checked before pydantic sees it."""
    value = values["epochs"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadUse(f"{part}.epochs must be a whole number, got {value!r}")
    return min(STEADY_EPOCHS, value // 10)


def for_cohort(
    cohort: Cohort,
    method: str,
    backbone: str = BACKBONE,
    budget: str = BUDGET,
    changes: Mapping[str, Any] | None = None,
    *,
    recipe: str | None = None,
    further: int = 0,
) -> Settings:
    """Settings of a method on a cohort, validated before any computation.

    Names, options and shapes are tried out; user-defined code is identified by its fingerprint.

    Parameters
    ----------
    cohort : Cohort
        Its defaults (burn-in) and its signal.
    method : str
        One of ``names()`` or ``ablations()``, or several joined by ``+``.
    backbone : str, default "covariance"
        Name or address; not used by baselines.
    budget : str, default "laptop"
        One of ``budgets()``.
    changes : dict, optional
        Changes to single settings: ``{"stage1.epochs": 5}``.
    recipe : str, optional
        One of ``recipes()``; by default ``ours``, or ``paper`` with the budget ``paper``.
    further : int, default 0
        Windows of a second cohort that Stage 1 learns from too.

    Returns
    -------
    Settings
    """
    if not is_address(backbone):
        backbones.check(backbone)  # also for baselines, which do not use it: a typing error is reported
    name = absolute(backbone)
    made = settings(method, name, budget, cohort.burn_in, changes, recipe=recipe or recipe_for(budget))
    user = flat(changes or {})
    tried = tuple(_limited(cohort, _tried(cohort, member), further, user) for member in made.each)
    return made.model_copy(update={"members": tried}) if made.members else tried[0]


def _tried(cohort: Cohort, chosen: Settings) -> Settings:
    """The settings with the fingerprint of user code; what cannot be built for the cohort is refused."""
    if chosen.backbone is None:
        baseline = baselines.create(chosen.source, chosen.baseline or {}, cohort.signal)
        if chosen.bags == "recording" and baseline.cross_validates:
            raise BadUse(
                f"{chosen.method} cross-validates within its training set (parameter cv), where a subject's recordings "
                "would be on both sides; leave --bags recording out, or choose its settings with --tune"
            )
        code = baselines.fingerprint(chosen.source)
    else:
        code = backbones.try_out(chosen.backbone, cohort.signal, chosen.encoder_options)
        if is_senseless(chosen.method, chosen.backbone):
            raise BadUse(f"{chosen.method}: {chosen.backbone} is a fixed front end; there are no samples to hide")
        if chosen.frozen:
            from bridgemil.learning.frozen import frozen_encoder

            made = frozen_encoder(chosen.backbone, cohort.signal, chosen.encoder_options, code, chosen.weights_file)
            chosen = chosen.model_copy(update={"weights": made.front_end.checksum})
    if chosen.harmonises:
        if chosen.stage1 is not None and chosen.stage1.pretrain_on is not None:
            raise BadUse(
                "sites and covariates of the evaluated cohort are not known of a second one: leave out --pretrain-on, "
                "or site_adjust and --adjust"
            )
        chosen = chosen.model_copy(update={"control": _control(cohort, chosen)})
    return chosen if code is None else chosen.model_copy(update={"code": code})


def _control(cohort: Cohort, chosen: Settings) -> str:
    """The control class of a cohort, for a method whose features can be adjusted."""
    name = chosen.backbone or chosen.address
    if name is not None and not (chosen.frozen or backbones.has_front_end(name)):
        raise BadUse(
            f"{name} has no fixed features that could be adjusted for sites or covariates; site_adjust and --adjust "
            "are for bandpower, tangent, covariance and encoders that are --frozen"
        )
    for column in (*([] if chosen.site_adjust == "none" else [chosen.site_column]), *chosen.adjust):
        cohort.column(column)
    if chosen.control is not None:
        one_of("control class", chosen.control, cohort.classes)
        return chosen.control
    controls = control_classes(cohort.classes)
    if len(controls) != 1:
        raise BadUse(f"not one class of {', '.join(cohort.classes)} is named as controls; set control=CLASS")
    return controls[0]


def _ceilings(chosen: Settings) -> dict[str, int]:
    """The largest number of steps of each stage in its recipe and budget; none in recipe ``paper``."""
    if chosen.budget is None or chosen.stage2 is None:
        return {}
    found = recipes()[chosen.recipe].get("budgets", {}).get(chosen.budget, {})
    parts = {"stage1": "stage1", "stage2": chosen.stage2.kind}
    return {stage: found[part]["max_steps"] for stage, part in parts.items() if "max_steps" in found.get(part, {})}


def _limited(cohort: Cohort, chosen: Settings, further: int, user: Mapping[str, Any]) -> Settings:
    """The settings with the ceiling of steps of every stage that would take more on the whole cohort.

    So the settings, and hence the identities, of a cohort that needs no ceiling are those without one. Setting the
    number of epochs disables the ceiling. ``further`` windows of a second cohort are learnt from in Stage 1.
    """
    found = {}
    for stage, most in _ceilings(chosen).items():
        own = getattr(chosen, stage)
        if own is None or f"{stage}.epochs" in user or f"{stage}.max_steps" in user:
            continue
        if isinstance(own, BagSettings):
            steps = math.ceil(len(cohort) / own.batch_subjects)
        else:
            steps = math.ceil((cohort.n_windows + further * (stage == "stage1")) / own.batch_windows)
        if with_min_steps(own, steps).epochs * steps > most:
            found[stage] = own.model_copy(update={"max_steps": most})
    return chosen.model_copy(update=found) if found else chosen


def changed_from_budget(chosen: Settings, burn_in: int | None = None) -> dict[str, Any]:
    """The settings that are not as the method, recipe and budget have them: what the user set.

    ``burn_in`` is the cohort's; without it one cannot tell whether the user set another.
    """
    if chosen.members:
        members = {member.method: changed_from_budget(member, burn_in) for member in chosen.members}
        return {f"{name}: {key}": value for name, own in members.items() for key, value in own.items()}
    adjusted = {key: value for key, value in chosen.shared.items() if key != "control"}
    adjusted |= {"adjust": ",".join(chosen.adjust)} if chosen.adjust else {}
    adjusted |= {f"tune.{key}": values for key, values in chosen.tune.items()}
    if chosen.backbone is None or chosen.budget is None:
        return {f"baseline.{key}": value for key, value in (chosen.baseline or {}).items()} | adjusted
    if chosen.frozen:
        adjusted["frozen"] = Path(chosen.weights_file).name if chosen.weights_file else True
    usual = settings(chosen.method, chosen.backbone, chosen.budget, burn_in or 0, recipe=chosen.recipe)
    plain = flat(usual.model_dump(mode="json"))
    own = flat({"backbone_options": chosen.encoder_options} | chosen.model_dump(mode="json"))
    parts = ("backbone_options.", "stage1.", "stage2.")
    changed = {key: value for key, value in own.items() if key.startswith(parts) and plain.get(key) != value}
    usual_too = {"stage2.burn_in"} if burn_in is None else set()
    for stage in ("stage1", "stage2"):
        if changed.get(f"{stage}.max_steps") == _ceilings(chosen).get(stage):
            usual_too.add(f"{stage}.max_steps")  # as the budget has it
        if f"{stage}.epochs" in changed:  # these follow from the epochs
            usual_too |= {f"{stage}.{name}" for name in ("warmup_epochs", "freeze_epochs", "min_steps")}
    if budgets()[chosen.budget]["reduced"] and "stage2.epochs" in changed:
        usual_too.add("stage2.burn_in")
    return adjusted | {key: value for key, value in changed.items() if key not in usual_too}
