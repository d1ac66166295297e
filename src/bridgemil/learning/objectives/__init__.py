"""What Stage 1 minimises. Add an objective with a file and one line here.

An objective with a colour is also a method of its name: this Stage 1, then attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast

from pydantic import Field, create_model

from bridgemil.learning.settings import AlignmentSettings, Stage1Settings, SupConSettings, UntrainedSettings
from bridgemil.registry import Entry, Registry

if TYPE_CHECKING:
    import torch
    from torch import nn

    from bridgemil.learning.data import WindowSet
    from bridgemil.learning.objectives.objective import Objective


@dataclass(frozen=True)
class ObjectiveEntry(Entry):
    """A Stage 1 objective; ``settings`` is its class of settings, where it has more than every objective has.

    With ``needs_samples`` it cannot be trained on the features of a front end, with ``needs_labels`` not on further
    subjects without a diagnosis.
    """

    settings: type[Stage1Settings] = Stage1Settings
    needs_samples: bool = False
    needs_labels: bool = False


OBJECTIVES = Registry("objective", __name__, {
    "alignment": ObjectiveEntry(
        "alignment of nearby windows and of sub-bags", "alignment:Alignment", settings=AlignmentSettings
    ),
    "supcon": ObjectiveEntry(
        "supervised contrastive learning", "supcon:SupCon", "#c2478b", "triangle", settings=SupConSettings,
        needs_labels=True,
    ),
    "masked": ObjectiveEntry("masked reconstruction", "masked:Masked", "#6f8f23", "triangle", needs_samples=True),
    "supervised": ObjectiveEntry(
        "classification of windows with inherited labels", "objective:Supervised", needs_labels=True
    ),
    "untrained": ObjectiveEntry("random weights", "objective:Untrained", settings=UntrainedSettings),
})  # fmt: skip


def _settings(name: str) -> type[Stage1Settings]:
    """The settings of an objective, whose ``objective`` can be nothing but its name."""
    fixed: Any = (Literal[name], name)
    title = f"{name.title().replace('_', '')}Stage1"
    made = create_model(title, __base__=OBJECTIVES[name].settings, __module__=__name__, objective=fixed)
    globals()[title] = made  # worker processes find a class by its name
    return cast("type[Stage1Settings]", made)


STAGE1 = {name: _settings(name) for name in OBJECTIVES}
if TYPE_CHECKING:
    AnyStage1Settings = Stage1Settings
else:
    AnyStage1Settings = Annotated[Union[tuple(STAGE1.values())], Field(discriminator="objective")]  # noqa: UP007


def create(
    encoder: nn.Module, backbone: str, data: WindowSet, settings: Stage1Settings, device: torch.device
) -> Objective:
    """The objective that the settings name, as a learner for ``bridgemil.learning.loop.train``.

    The encoder (N x *shape -> N x d, on ``device``) is trained in place on the training subjects' windows; some
    objectives use the window classifier of its ``backbone``, by name.
    """
    return OBJECTIVES.load(settings.objective)(encoder, backbone, data, settings, device)
