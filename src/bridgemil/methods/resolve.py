"""The settings of a run, from a method, a recipe, a budget and what the user set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bridgemil import aggregators, baselines
from bridgemil.cohort.tables import control_classes
from bridgemil.errors import BadUse, one_of
from bridgemil.learning.objectives import STAGE1, AnyStage1Settings
from bridgemil.learning.settings import Stage2Settings
from bridgemil.methods.changes import (
    epochs_of,
    flat,
    frozen_changes,
    nested,
    part_of,
    refuse_fixed,
    steady_epochs,
    without_minimum,
)
from bridgemil.methods.length import ceilings, length, limited
from bridgemil.methods.registry import (
    ABLATIONS,
    BACKBONE,
    BUDGET,
    HARMONISATION,
    JOIN,
    METHODS,
    PAPER,
    REFERENCE,
    SHARED,
    budgets,
    check,
    has_setting,
    is_baseline,
    is_senseless,
    recipe_for,
    recipes,
)
from bridgemil.settings import parse
from bridgemil.storage.artifact import digest
from bridgemil.user_code import absolute, is_address, short_name

if TYPE_CHECKING:
    from bridgemil.cohort.cohort import Cohort


class Settings(BaseModel):
    """Everything that decides the result of a run, but for the data, the subjects of its fold and the seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str
    backbone: str | None = None
    backbone_options: dict[str, Any] = Field(default_factory=dict)
    code: str | None = Field(None, description="fingerprint of a backbone or baseline that is not ours")
    frozen: bool = Field(False, description="the encoder is never trained; its embeddings are computed once")
    weights: str | None = Field(None, description="checksum of a frozen encoder's weights")
    recipe: str = PAPER
    budget: str | None = None
    stage1: AnyStage1Settings | None = None
    stage2: Stage2Settings | None = None
    baseline: dict[str, Any] | None = None
    address: str | None = Field(None, description="of the user's scikit-learn pipeline that is the method")
    site_adjust: Literal["none", "people", "controls"] = Field(
        "none", description="remove location and scale of features per site, known by all its subjects or its controls"
    )
    site_column: str = Field("site", description="column that holds the site")
    site_controls: int = Field(15, ge=2, description="controls of a test site that are set aside for its adjustment")
    control: str | None = Field(None, description="the control class; by default the one named control, healthy, …")
    adjust: tuple[str, ...] = Field((), description="columns whose linear effect, estimated on controls, is removed")
    bags: Literal["subject", "recording"] = Field(
        "subject", description="one bag per subject, or one per recording; a subject's probability is then their mean"
    )
    members: tuple[Settings, ...] = Field((), description="of an ensemble, whose own settings are its members'")
    tune: dict[str, list[Any]] = Field(default_factory=dict, description="values among which each fold chooses")
    candidates: tuple[tuple[dict[str, Any], Settings], ...] = Field(
        (), description="every combination of them, the simplest first: what it changes, and all its settings"
    )

    @field_validator("adjust", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value

    @property
    def is_network(self) -> bool:
        """Whether something is trained by steps; a baseline is not."""
        return self.stage2 is not None

    @property
    def source(self) -> str:
        """The name or address by which a baseline is created; ``method`` is for display."""
        return self.address or self.method

    @property
    def harmonises(self) -> bool:
        """Whether features are adjusted for sites or covariates."""
        return self.site_adjust != "none" or bool(self.adjust)

    @property
    def encoder_options(self) -> dict[str, Any]:
        """The options that the backbone is made with: of a frozen one without the file of its weights."""
        return {key: value for key, value in self.backbone_options.items() if not (self.frozen and key == "weights")}

    @property
    def weights_file(self) -> str | None:
        """The file of a frozen encoder's weights; None where the backbone has its own."""
        return self.backbone_options.get("weights") if self.frozen else None

    @property
    def shared(self) -> dict[str, Any]:
        """The settings that every method has and that are not the defaults, by name."""
        return self.model_dump(include=set(SHARED), exclude_defaults=True)

    @property
    def unadjusted(self) -> Settings:
        """The same without adjustment for sites and covariates."""
        usual: dict[str, Any] = {name: Settings.model_fields[name].default for name in HARMONISATION}
        inner = tuple((changes, candidate.unadjusted) for changes, candidate in self.candidates)
        members = tuple(member.unadjusted for member in self.members)
        return self.model_copy(update=usual | {"members": members, "candidates": inner})

    @property
    def recorded(self) -> bool:
        """Whether features were asked for with the recorded reference, not the average reference."""
        return "recorded" in ((self.baseline or {}).get("reference"), self.backbone_options.get("reference"))

    @property
    def reference_free(self) -> bool:
        """Whether all features are computed on the average reference: the recorded one makes no difference then."""
        if self.members:
            return all(member.reference_free for member in self.members)
        if self.recorded or self.code is not None:
            return False
        return self.backbone == "covariance" if self.is_network else has_setting(self.method, REFERENCE)

    @property
    def weight(self) -> float:
        """Weight of its probabilities in an ensemble: 3 of a baseline, 1 of a network.

        The probabilities of a network that overfits are close to 0 and 1 and would decide alone. Chosen among weights
        of 1, 2, 3, 4 and 6, with and without equal confidence, over five splits (see docs/results.md).
        """
        return 1.0 if self.is_network else 3.0

    @property
    def selects(self) -> bool:
        """Whether an epoch is selected on validation subjects; of an ensemble, whether any member does so.

        Baselines have no epochs, and with ``selection: last`` (recipe ``ours``) the last epoch is used.
        """
        if self.members:
            return any(member.selects for member in self.members)
        return self.stage2 is not None and self.stage2.selection != "last"

    @property
    def each(self) -> tuple[Settings, ...]:
        """An ensemble's members; of anything else, itself."""
        return self.members or (self,)

    @property
    def changed(self) -> dict[str, Any]:
        """What differs from the defaults: a setting added later, at its default, changes no identity."""
        content = self.model_dump(mode="json", exclude_defaults=True, exclude={"address", "tune", "candidates"})
        if self.code is not None and self.backbone is not None:
            content["backbone"] = short_name(self.backbone)  # the code says what it is: a moved folder changes nothing
        if self.frozen:  # the checksum says which weights these are
            content["backbone_options"] = self.encoder_options
        if self.members:
            content["members"] = [member.changed for member in self.members]
        if self.candidates:
            content["candidates"] = [candidate.changed for _, candidate in self.candidates]
        if self.stage1 is not None:
            content["stage1"]["objective"] = self.stage1.objective
            if self.stage1.pretrain_on is not None:  # a renamed folder changes nothing
                content["stage1"]["pretrain_on"] = self.stage1.pretrain_on.rpartition("@")[2]
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
    refuse_fixed(nested(changes or {}))
    if JOIN in method:
        shares = _shares(method, changes or {})
        members = tuple(settings(name, backbone, budget, burn_in, shares[name], recipe=recipe) for name in shares)
        network = next((member for member in members if member.is_network), None)
        shared = {} if network is None else {name: getattr(network, name) for name in ("backbone", "recipe", "budget")}
        return Settings(method=JOIN.join(member.method for member in members), members=members, **shared)
    user = nested(_with_reference(method, backbone, changes or {}))
    if is_baseline(method):
        return _baseline_settings(method, user)
    return _network_settings(method, backbone, budget, recipe, burn_in, user)


def _shares(method: str, changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each member of an ensemble, the user's changes that concern it."""
    user = flat(changes)
    shares = {name: {key: user[key] for key in user if has_setting(name, key)} for name in method.split(JOIN)}
    for key in user:
        if not any(key in share for share in shares.values()):
            raise BadUse(f"no member of {method} has a setting {key}")
    return shares


def _with_reference(method: str, backbone: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """``baselines.reference`` as the baseline's own setting, or as an option of the backbone ``covariance``."""
    changed = flat(changes)
    if REFERENCE not in changed:
        return dict(changes)
    reference = changed.pop(REFERENCE)
    if is_baseline(method):
        return changed | {"baseline.reference": reference}
    if backbone == "covariance":
        return changed | {"backbone_options.reference": reference}
    raise BadUse(
        f"{backbone} works on the windows as they are prepared: {REFERENCE} is a setting of bandpower, tangent and "
        "covariance; use prepare --reference average"
    )


def _baseline_settings(method: str, user: dict[str, Any]) -> Settings:
    values = part_of(user, "baseline")
    adjusted = {key: user.pop(key) for key in SHARED if key in user}
    for part in user:
        raise BadUse(f"{method} is a baseline; there is nothing to set in {part} (its own settings: baseline.…)")
    checked = parse(baselines.get(method).Settings, values, prefix="baseline")
    own = checked.model_dump(mode="json", exclude_defaults=True)
    address = absolute(method) if is_address(method) else None
    return parse(Settings, {"method": short_name(method), "address": address, "baseline": own} | adjusted)


def _network_settings(
    method: str, backbone: str, budget: str, recipe: str, burn_in: int, user: dict[str, Any]
) -> Settings:
    chosen, manner = (METHODS | ABLATIONS)[method], recipes()[recipe]
    time = length(recipe, budget)
    values: dict[str, Any] = {"method": method, "backbone": backbone, "budget": budget, "recipe": recipe}
    if user.get("frozen"):
        user = frozen_changes(method, user)
    if "baseline" in user:
        raise BadUse(f"{method} is a network; there is nothing to set in baseline")
    if chosen.stage1 is not None:
        known = STAGE1[chosen.stage1["objective"]].model_fields
        manner1 = {key: value for key, value in (manner.get("stage1", {}) | time["stage1"]).items() if key in known}
        stage1 = manner1 | dict(chosen.stage1) | without_minimum(part_of(user, "stage1"))
        values["stage1"] = {"warmup_epochs": steady_epochs(stage1, "stage1")} | stage1
    elif "stage1" in user:
        raise BadUse(f"{method} has no Stage 1; there is nothing to set in stage1")
    # What makes the method (its aggregator, an ablation's zero) is not the recipe's to change.
    fixed = {key: chosen.stage2[key] for key in ("kind", "aggregator") if key in chosen.stage2}
    if method in ABLATIONS:
        fixed = dict(chosen.stage2)
    mine = without_minimum(part_of(user, "stage2"))
    usual = dict(manner.get(chosen.kind, {}))
    if mine.get("aggregator", chosen.stage2.get("aggregator")) not in aggregators.with_positions():
        # It has no positions to leave out; TimeMIL reads windows in order, and its transformer bears no high rate.
        usual = {key: value for key, value in usual.items() if key in ("averaging", "selection")}
    stage2 = dict(chosen.stage2) | usual | fixed | time[chosen.stage2["kind"]] | mine
    whole = epochs_of(stage2, "stage2")
    stage2 = {"burn_in": min(burn_in, whole // 3) if time["reduced"] else burn_in} | stage2
    if chosen.kind == "two_stage":
        stage2 = {
            "warmup_epochs": steady_epochs(stage2, "stage2"),
            "freeze_epochs": steady_epochs(stage2, "stage2"),
        } | stage2
    return parse(Settings, values | {"stage2": stage2} | user)


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
    from bridgemil import backbones

    check(method)
    if not is_address(backbone):
        backbones.check(backbone)  # also for baselines, which do not use it: a typing error is reported
    name = absolute(backbone)
    made = settings(method, name, budget, cohort.burn_in, changes, recipe=recipe or recipe_for(budget))
    user = flat(changes or {})
    tried = tuple(limited(cohort, _tried(cohort, member), further, user) for member in made.each)
    return made.model_copy(update={"members": tried}) if made.members else tried[0]


def _tried(cohort: Cohort, chosen: Settings) -> Settings:
    """The settings with the fingerprint of user code; what cannot be built for the cohort is refused."""
    from bridgemil import backbones

    if chosen.backbone is None:
        baselines.create(chosen.source, chosen.baseline or {}, cohort.signal)
        code = baselines.fingerprint(chosen.source)
    else:
        code = backbones.try_out(chosen.backbone, cohort.signal, chosen.encoder_options)
        if is_senseless(chosen.method, chosen.backbone):
            raise BadUse(
                f"{chosen.method}: {chosen.backbone} is a fixed front end and a linear layer; there are no samples to "
                "hide and predict"
            )
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
    from bridgemil import backbones

    name = chosen.backbone or chosen.address
    if name is not None and not (chosen.frozen or backbones.has_front_end(name)):
        raise BadUse(
            f"{name} has no fixed features that could be adjusted for sites or covariates; site_adjust and --adjust "
            "are for bandpower, tangent, covariance and encoders that are --frozen"
        )
    if chosen.site_adjust != "none":
        cohort.column(chosen.site_column)
    for column in chosen.adjust:
        cohort.column(column)
    if chosen.control is not None:
        one_of("control class", chosen.control, cohort.classes)
        return chosen.control
    controls = control_classes(cohort.classes)
    if len(controls) != 1:
        found = "several classes are" if controls else "no class is"
        raise BadUse(f"{found} named as controls among {', '.join(cohort.classes)}; name it: --set control=CLASS")
    return controls[0]


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
    adjusted = {key: value for key, value in chosen.shared.items() if key != "control"}
    adjusted |= {"adjust": ",".join(chosen.adjust)} if chosen.adjust else {}
    adjusted |= {f"tune.{key}": values for key, values in chosen.tune.items()}
    if not chosen.is_network:
        return {f"baseline.{key}": value for key, value in (chosen.baseline or {}).items()} | adjusted
    assert chosen.backbone is not None
    assert chosen.budget is not None
    usual = settings(chosen.method, chosen.backbone, chosen.budget, burn_in or 0, recipe=chosen.recipe)
    plain, changed = usual.model_dump(mode="json"), dict[str, Any](adjusted)
    if chosen.frozen:
        changed["frozen"] = Path(chosen.weights_file).name if chosen.weights_file else True
    for part, values in chosen.model_dump(mode="json").items():
        if part == "backbone_options":
            values = chosen.encoder_options
        if isinstance(values, dict) and isinstance(plain[part], dict):
            changed |= {f"{part}.{k}": v for k, v in values.items() if plain[part].get(k) != v}
    if burn_in is None:
        changed.pop("stage2.burn_in", None)
    for stage, most in ceilings(chosen).items():
        if changed.get(f"{stage}.max_steps") == most:
            del changed[f"{stage}.max_steps"]  # as the budget has it
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
