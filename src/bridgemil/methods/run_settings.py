"""The settings of a run, as they are stored with it and name it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bridgemil.learning.objectives import AnyStage1Settings
from bridgemil.learning.settings import Stage2Settings
from bridgemil.methods.registry import HARMONISATION, PAPER, REFERENCE, SHARED, has_setting
from bridgemil.storage.artifact import digest
from bridgemil.user_code import short_name


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
