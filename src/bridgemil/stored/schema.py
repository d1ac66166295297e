"""What a JSON file of ours must say."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Schema(BaseModel):
    """What a file must say; it may say more."""

    model_config = ConfigDict(extra="allow")
