"""How each part of a method is trained, as settings. The defaults are those of the two-stage methods in the paper."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from bridgemil import aggregators
from bridgemil.learning.selection import Selection

# The upper bounds below are far beyond what is of use: they stop a slip of the keyboard before it asks for memory.
MOST_EPOCHS, MOST_STEPS, MOST_WINDOWS, MOST_WEIGHT = 100_000, 100_000_000, 1_000_000, 1e6
MIN_STEPS = "optimiser steps at least: epochs, warm-up, freezing and burn-in grow in proportion where they are too few"


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Stage1(_Settings):
    objective: str
    epochs: int = Field(50, ge=1, le=MOST_EPOCHS)
    batch_windows: int = Field(512, ge=2, le=MOST_WINDOWS, description="windows (alignment: anchors) in a step")
    lr: float = Field(1e-3, gt=0, le=MOST_WEIGHT)
    weight_decay: float = Field(1e-4, ge=0, le=MOST_WEIGHT)
    warmup_epochs: int = Field(5, ge=0, le=MOST_EPOCHS)
    min_steps: int = Field(0, ge=0, le=MOST_STEPS, description=MIN_STEPS)


class AlignmentSettings(_Stage1):
    """BridgeMIL's Stage 1: nearby windows, and sub-bags of a subject, are aligned."""

    objective: Literal["alignment"] = "alignment"
    nearby: bool = Field(True, description="align nearby windows")
    subbag: bool = Field(True, description="align sub-bags of a subject")
    radius: int = Field(2, ge=1, le=MOST_WINDOWS, description="how many windows away a nearby partner may be")
    subbag_size: int = Field(8, ge=1, le=MOST_WINDOWS, description="windows in a sub-bag")
    subbag_pairs: int = Field(512, ge=2, le=MOST_WINDOWS, description="pairs of sub-bags in a step")
    invariance: float = Field(25.0, ge=0, le=MOST_WEIGHT)
    variance: float = Field(25.0, ge=0, le=MOST_WEIGHT)
    covariance: float = Field(1.0, ge=0, le=MOST_WEIGHT)

    @model_validator(mode="after")
    def _something_to_align(self) -> Self:
        if not (self.nearby or self.subbag):
            raise ValueError("nearby and subbag are both off: nothing is left to align")
        return self


# These have no default objective, so that what differs from the defaults always names it.
class SupConSettings(_Stage1):
    """Stage 1 by supervised contrast: windows of one inherited diagnosis are pulled together."""

    objective: Literal["supcon"]


class MaskedSettings(_Stage1):
    """Stage 1 by masked reconstruction."""

    objective: Literal["masked"]


class SupervisedSettings(_Stage1):
    """Stage 1 by classifying windows with inherited labels (an ablation)."""

    objective: Literal["supervised"]


class UntrainedSettings(_Stage1):
    """No Stage 1: the encoder keeps its random weights, and batch norm comes to know the windows (an ablation)."""

    objective: Literal["untrained"]
    weight_decay: Literal[0] = Field(0, description="nothing may change a weight")


class _Trained(_Settings):
    epochs: int = Field(100, ge=1, le=MOST_EPOCHS)
    lr: float = Field(5e-4, gt=0, le=MOST_WEIGHT, description="of the head; of everything if encoder_lr is not given")
    weight_decay: float = Field(1e-4, ge=0, le=MOST_WEIGHT)
    burn_in: int = Field(0, ge=0, le=MOST_EPOCHS, description="epochs (from 0) below this one are not selected")
    class_weight: bool = Field(False, description="weigh classes by inverse frequency")
    min_steps: int = Field(0, ge=0, le=MOST_STEPS, description=MIN_STEPS)
    selection: Selection = Field(
        "accuracy", description="which epoch: highest validation accuracy, lowest validation loss, or the last one"
    )
    averaging: float = Field(0.0, ge=0, lt=1, description="decay per step of a moving average of weights; 0: none")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="of the cross-entropy that is trained")

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
    batch_windows: int = Field(512, ge=2, le=MOST_WINDOWS, description="windows in a step")


class BagSettings(_Trained):
    """One label a bag: an encoder and an aggregator, trained together."""

    kind: Literal["bags"] = "bags"
    aggregator: str = "attention"
    batch_subjects: int = Field(8, ge=1, le=MOST_WINDOWS, description="subjects in a step")
    optimiser: Literal["adam", "adamw"] = "adamw"
    schedule: Literal["constant", "cosine"] = "cosine"
    encoder_lr: float | None = Field(1e-4, gt=0, le=MOST_WEIGHT)
    warmup_epochs: int = Field(5, ge=0, le=MOST_EPOCHS)
    freeze_epochs: int = Field(5, ge=0, le=MOST_EPOCHS, description="epochs in which only the aggregator learns")
    frozen: bool = Field(False, description="only the aggregator ever learns")
    retention: float = Field(1e-5, ge=0, le=MOST_WEIGHT, description="weight of staying near the Stage 1 embeddings")
    retention_windows: int = Field(
        512, ge=1, le=MOST_WINDOWS, description="windows of a step it is computed on, at most"
    )
    bag_windows: int | None = Field(
        None,
        ge=1,
        le=MOST_WINDOWS,
        description="windows of a bag in a training step, at most, drawn anew each time; None: all",
    )
    positions: bool = Field(True, description="add each window's place in the bag to its embedding")
    dropout: float = Field(0.1, ge=0, lt=1, description="of the aggregator")

    @field_validator("aggregator")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in aggregators.names():
            raise ValueError(f"must be one of {', '.join(aggregators.names())}; got {name!r}")
        return name

    @model_validator(mode="after")
    def _positions_to_leave_out(self) -> Self:
        if self.bag_windows is not None and self.positions and self.aggregator in aggregators.with_positions():
            raise ValueError(
                "bag_windows draws some windows of a bag, so positions in it mean nothing: set positions=false"
            )
        if not self.positions and self.aggregator not in aggregators.with_positions():
            known = ", ".join(aggregators.with_positions())
            raise ValueError(
                f"positions cannot be left out of {self.aggregator}, only of {known}; do not set positions"
            )
        return self


Stage1Settings = Annotated[
    AlignmentSettings | SupConSettings | MaskedSettings | SupervisedSettings | UntrainedSettings,
    Field(discriminator="objective"),
]
STAGE1: dict[str, type[BaseModel]] = {
    "alignment": AlignmentSettings,
    "supcon": SupConSettings,
    "masked": MaskedSettings,
    "supervised": SupervisedSettings,
    "untrained": UntrainedSettings,
}
Stage2Settings = Annotated[WindowSettings | BagSettings, Field(discriminator="kind")]
STAGE2: dict[str, type[BaseModel]] = {"windows": WindowSettings, "bags": BagSettings}

_Loop = TypeVar("_Loop", bound=_Stage1 | _Trained)


def with_min_steps(settings: _Loop, steps: int) -> _Loop:
    """The settings with as many epochs as ``min_steps`` asks for.

    epochs becomes max(epochs, ceil(min_steps / steps)). Warm-up, freezing and burn-in stay the same share of the run:
    each is multiplied by the same factor and rounded to whole epochs.

    Parameters
    ----------
    settings
        Of Stage 1, of windows or of bags.
    steps
        Optimiser steps in an epoch of these training subjects.
    """
    epochs = max(settings.epochs, math.ceil(settings.min_steps / max(1, steps)))
    if epochs == settings.epochs:
        return settings
    parts = [name for name in ("warmup_epochs", "freeze_epochs", "burn_in") if name in type(settings).model_fields]
    longer = {name: int(getattr(settings, name) * epochs / settings.epochs + 0.5) for name in parts}
    return cast("_Loop", settings.model_copy(update={"epochs": epochs} | longer))
