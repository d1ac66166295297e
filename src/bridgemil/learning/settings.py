"""How each part of a method is trained, as settings. The defaults are those of the two-stage methods in the paper."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Stage1Settings(_Settings):
    """Stage 1: window representations, learnt on the training subjects only."""

    objective: Literal["alignment", "supcon", "masked", "supervised"] = "alignment"
    epochs: int = Field(50, ge=1)
    batch_windows: int = Field(512, ge=2, description="windows (alignment: anchors) in a step")
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(1e-4, ge=0)
    warmup_epochs: int = Field(5, ge=0)
    # alignment only
    nearby: bool = Field(True, description="align nearby windows")
    subbag: bool = Field(True, description="align sub-bags of a subject")
    radius: int = Field(2, ge=1, description="how many windows away a nearby partner may be")
    subbag_size: int = Field(8, ge=1, description="windows in a sub-bag")
    subbag_pairs: int = Field(512, ge=2, description="pairs of sub-bags in a step")
    invariance: float = Field(25.0, ge=0)
    variance: float = Field(25.0, ge=0)
    covariance: float = Field(1.0, ge=0)

    @model_validator(mode="after")
    def _something_to_align(self) -> Self:
        if not (self.nearby or self.subbag):
            raise ValueError("nearby and subbag are both off: nothing is left to align")
        return self


class _Trained(_Settings):
    epochs: int = Field(100, ge=1)
    lr: float = Field(5e-4, gt=0, description="of the head; of everything if encoder_lr is not given")
    weight_decay: float = Field(1e-4, ge=0)
    burn_in: int = Field(0, ge=0, description="epochs (from 0) below this one are not selected")
    class_weight: bool = Field(False, description="weigh classes by inverse frequency")

    @model_validator(mode="after")
    def _some_epoch_counts(self) -> Self:
        if self.burn_in >= self.epochs:
            raise ValueError(
                f"burn_in {self.burn_in} leaves no epoch of {self.epochs} to select; raise epochs or lower burn_in"
            )
        return self


class WindowSettings(_Trained):
    """Every window inherits its subject's label; a subject is decided by a vote of its windows."""

    kind: Literal["windows"] = "windows"
    batch_windows: int = Field(512, ge=2, description="windows in a step")


class BagSettings(_Trained):
    """One label a bag: an encoder and an aggregator, trained together."""

    kind: Literal["bags"] = "bags"
    aggregator: str = "attention"
    batch_subjects: int = Field(8, ge=1, description="subjects in a step")
    optimiser: Literal["adam", "adamw"] = "adamw"
    schedule: Literal["constant", "cosine"] = "cosine"
    encoder_lr: float | None = Field(1e-4, gt=0)
    warmup_epochs: int = Field(5, ge=0)
    freeze_epochs: int = Field(5, ge=0, description="epochs in which only the aggregator learns")
    retention: float = Field(1e-5, ge=0, description="weight of staying near the Stage 1 embeddings")
    retention_windows: int = Field(512, ge=1, description="windows of a step it is computed on, at most")


class BandPowerSettings(_Settings):
    """No network: log relative band power, averaged over windows, into a classifier."""

    kind: Literal["bandpower"] = "bandpower"
    classifier: Literal["logistic", "extra_trees"] = "logistic"


Stage2Settings = Annotated[WindowSettings | BagSettings | BandPowerSettings, Field(discriminator="kind")]
STAGE2: dict[str, type[BaseModel]] = {"windows": WindowSettings, "bags": BagSettings, "bandpower": BandPowerSettings}
