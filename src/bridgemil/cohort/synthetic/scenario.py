"""What to simulate, and the strengths that were accepted for each version of the generator."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

CLASSES = ("control", "slowing", "frontal")
# Accepted by benchmarks/synthetic_acceptance.py, and frozen before any learning method was run on them.
STRENGTHS = {
    1: {"strength": 12.0, "burst_strength": 160.0},
    2: {"strength": 6.5, "burst_strength": 230.0},
}
SINCE_VERSION_2 = ("version", "trait_strength", "common_uv")


class SynthSettings(BaseModel):
    """What to simulate. The numbers that decide how hard the task is are frozen defaults, by version."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subjects: int = Field(60, ge=6, description="people in all, dealt evenly to the classes")
    classes: Literal[2, 3] = 2
    seconds: int = Field(120, ge=60, description="length of each recording")
    sfreq: int = Field(256, ge=128, description="samples a second")
    evidence: Literal["state", "burst", "trait"] = "state"
    seed: int = Field(0, ge=0)
    strength: float = Field(gt=0, description="amplitude of the slowing at its height, in microvolt")
    burst_strength: float = Field(gt=0, description="height of a sharp wave, in microvolt")
    version: Literal[1, 2] = Field(2, description="of the generator; 1 gives the cohorts of before")
    trait_strength: float = Field(1.7, gt=0, description="how far the disease shifts the background")
    common_uv: float = Field(32.5, ge=0, description="what all electrodes share, alike in everyone, in microvolt")

    @model_validator(mode="before")
    @classmethod
    def _strengths(cls, given: Any) -> Any:
        """Strengths that are not given are those accepted for the version."""
        if not isinstance(given, dict):
            return given
        return STRENGTHS.get(given.get("version", 2), STRENGTHS[2]) | given

    @model_validator(mode="after")
    def _known_to_version_1(self) -> Self:
        if self.version == 1:
            if self.evidence == "trait":
                raise ValueError("evidence 'trait' came with version 2 of the generator; leave the version out")
            fields = type(self).model_fields
            changed = [n for n in SINCE_VERSION_2[1:] if getattr(self, n) != fields[n].default]
            if changed:
                raise ValueError(f"{', '.join(changed)} came with version 2 of the generator; leave it out")
        return self

    def as_written(self) -> dict[str, Any]:
        """The settings as the data set's description holds them: of version 1, those that there were."""
        return self.model_dump(exclude=set(SINCE_VERSION_2) if self.version == 1 else None)
