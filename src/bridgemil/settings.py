"""Reading settings objects: pydantic's findings as one sentence that names the setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bridgemil.errors import BadUse

Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Build a settings object, or raise ``BadUse`` naming every setting that is wrong."""
    try:
        return model(**values)
    except ValidationError as error:
        found = []
        for detail in error.errors():
            name = ".".join(map(str, detail["loc"]))
            known = f"; the settings are {', '.join(model.model_fields)}" if detail["type"] == "extra_forbidden" else ""
            words = detail["msg"].removeprefix("Value error, ") + known
            found.append(f"{name}: {words}" if name else words)
        raise BadUse(f"{'; '.join(found)} (of {model.__name__})") from None
