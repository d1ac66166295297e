"""How each part of a method is trained, as settings. The defaults are those of the two-stage methods in the paper."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from bridgemil import aggregators

# The upper bounds are far beyond what is of use: they stop a typing error before it asks for memory.
MOST_WINDOWS = 1_000_000
Count = Annotated[int, Field(ge=1, le=MOST_WINDOWS)]
SomeEpochs = Annotated[int, Field(ge=1, le=100_000)]
Epochs = Annotated[int, Field(ge=0, le=100_000)]
Weight = Annotated[float, Field(ge=0, le=1e6)]
Rate = Annotated[float, Field(gt=0, le=1e6)]
Share = Annotated[float, Field(ge=0, lt=1)]
Steps = Annotated[
    int,
    Field(ge=0, le=100_000_000, description="minimum number of optimiser steps: epochs, warm-up, freezing and burn-in "
          "grow in proportion where they are too few"),
]  # fmt: skip
MaxSteps = Annotated[
    int | None,
    Field(ge=1, le=100_000_000, description="maximum number of optimiser steps: where epochs would take more, each "
          "takes an equal share of them, on a random part of the windows or subjects"),
]  # fmt: skip
Selection = Literal["accuracy", "loss", "last"]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Stage1Settings(_Settings):
    """Settings that every Stage 1 objective has; one with further settings has a subclass."""

    views: ClassVar[int] = 1  # times that a window is encoded in an epoch

    objective: str
    epochs: SomeEpochs = 50
    batch_windows: int = Field(512, ge=2, le=MOST_WINDOWS, description="windows (alignment: anchors) in a step")
    lr: Rate = 1e-3
    weight_decay: Weight = 1e-4
    warmup_epochs: Epochs = 5
    min_steps: Steps = 0
    max_steps: MaxSteps = None
    pretrain_on: str | None = Field(None, description="further cohort whose windows are learned from, as NAME@HASH")

    def encoded(self, n: int) -> tuple[int, int]:
        """Windows that are encoded in an epoch of n training windows, and in its largest step."""
        return self.views * n, self.views * min(self.batch_windows, n)


class AlignmentSettings(Stage1Settings):
    """BridgeMIL's Stage 1: nearby windows, and sub-bags of a subject, are aligned."""

    nearby: bool = Field(True, description="align nearby windows")
    subbag: bool = Field(True, description="align sub-bags of a subject")
    radius: Count = Field(2, description="largest distance of a nearby partner, in windows")
    subbag_size: Count = Field(8, description="windows in a sub-bag")
    subbag_pairs: int = Field(512, ge=2, le=MOST_WINDOWS, description="pairs of sub-bags in a step")
    invariance: Weight = 25.0
    variance: Weight = 25.0
    covariance: Weight = 1.0

    @model_validator(mode="after")
    def _something_to_align(self) -> Self:
        if not (self.nearby or self.subbag):
            raise ValueError("nearby and subbag are both off: nothing is left to align")
        return self

    def encoded(self, n: int) -> tuple[int, int]:
        """Both windows of each nearby pair, and all windows of the sub-bags."""
        batch = min(self.batch_windows, n)
        subbags = 2 * self.subbag_pairs * self.subbag_size if self.subbag else 0
        return (2 * n if self.nearby else 0) + -(-n // batch) * subbags, 2 * batch + subbags


class SupConSettings(Stage1Settings):
    """Supervised contrastive learning encodes two views of every window."""

    views = 2


class UntrainedSettings(Stage1Settings):
    """An encoder that keeps its random weights (an ablation)."""

    weight_decay: Literal[0] = Field(0, description="no weight may change")


class TrainedSettings(_Settings):
    """What training on windows and on bags has in common."""

    epochs: SomeEpochs = 100
    lr: Rate = Field(5e-4, description="of the head; of everything if encoder_lr is not given")
    weight_decay: Weight = 1e-4
    burn_in: Epochs = Field(0, description="epochs (from 0) below this one are not selected")
    class_weight: bool = Field(False, description="weight classes by inverse frequency")
    min_steps: Steps = 0
    max_steps: MaxSteps = None
    selection: Selection = Field(
        "accuracy", description="which epoch: highest validation accuracy, lowest validation loss, or the last one"
    )
    averaging: Share = Field(0.0, description="decay per step of a moving average of weights; 0: none")
    label_smoothing: Share = Field(0.0, description="of the cross-entropy that is trained")

    @model_validator(mode="after")
    def _some_epoch_counts(self) -> Self:
        if self.burn_in >= self.epochs:
            raise ValueError(
                f"burn_in {self.burn_in} leaves no epoch of {self.epochs} to select; raise epochs or lower burn_in"
            )
        return self


class WindowSettings(TrainedSettings):
    """Every window inherits its subject's label; a subject is classified by majority vote of its windows."""

    kind: Literal["windows"] = "windows"
    batch_windows: int = Field(512, ge=2, le=MOST_WINDOWS, description="windows in a step")


class BagSettings(TrainedSettings):
    """One label per bag: an encoder and an aggregator, trained together."""

    kind: Literal["bags"] = "bags"
    aggregator: str = "attention"
    batch_subjects: Count = Field(8, description="subjects in a step")
    optimiser: Literal["adam", "adamw"] = "adamw"
    schedule: Literal["constant", "cosine"] = "cosine"
    encoder_lr: Rate | None = 1e-4
    warmup_epochs: Epochs = 5
    freeze_epochs: Epochs = Field(5, description="epochs in which only the aggregator is trained")
    frozen: bool = Field(False, description="the encoder is never trained")
    retention: Weight = Field(1e-5, description="weight of the distance to the Stage 1 embeddings")
    retention_windows: Count = Field(512, description="most windows of a step on which retention is computed")
    bag_windows: Count | None = Field(
        None, description="most windows of a bag in a training step, drawn at random in each step; None: all"
    )
    positions: bool = Field(True, description="add each window's position in the bag to its embedding")
    dropout: Share = Field(0.1, description="of the aggregator")

    @field_validator("aggregator")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in aggregators.names():
            raise ValueError(f"must be one of {', '.join(aggregators.names())}; got {name!r}")
        return name

    @model_validator(mode="after")
    def _positions_to_leave_out(self) -> Self:
        known = aggregators.with_positions()
        if self.bag_windows is not None and self.positions and self.aggregator in known:
            raise ValueError(
                "bag_windows draws some windows of a bag, so positions in it mean nothing: set positions=false"
            )
        if not self.positions and self.aggregator not in known:
            raise ValueError(
                f"positions cannot be left out of {self.aggregator}, only of {', '.join(known)}; do not set positions"
            )
        return self


Stage2Settings = Annotated[WindowSettings | BagSettings, Field(discriminator="kind")]
STAGE2: dict[str, type[TrainedSettings]] = {"windows": WindowSettings, "bags": BagSettings}

Loop = TypeVar("Loop", bound=Stage1Settings | TrainedSettings)


def with_min_steps(settings: Loop, steps: int) -> Loop:
    """The settings with as many epochs as ``min_steps`` requires, for so many optimiser steps in an epoch.

    epochs becomes max(epochs, ceil(min_steps / steps)). Warm-up, freezing and burn-in stay the same share of the run:
    each is multiplied by the same factor and rounded to whole epochs.
    """
    epochs = max(settings.epochs, math.ceil(settings.min_steps / max(1, steps)))
    if epochs == settings.epochs:
        return settings
    parts = [name for name in ("warmup_epochs", "freeze_epochs", "burn_in") if name in type(settings).model_fields]
    longer: dict[str, Any] = {name: int(getattr(settings, name) * epochs / settings.epochs + 0.5) for name in parts}
    return cast("Loop", settings.model_copy(update={"epochs": epochs} | longer))


def limited_steps(settings: Stage1Settings | TrainedSettings, steps: int) -> int:
    """Optimiser steps in an epoch under ``max_steps``, of ``steps`` in one that visits everything.

    ``settings`` are those from ``with_min_steps``; the number of epochs, and with it the share of warm-up, freezing and
    burn-in, stays.
    """
    return steps if settings.max_steps is None else min(steps, max(1, settings.max_steps // settings.epochs))
