"""Reading settings objects: pydantic's findings as one sentence that names the setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bridgemil.errors import BadUse

Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], values: Mapping[str, Any], prefix: str = "") -> Model:
    """Build a settings object, or raise ``BadUse`` naming every setting that is wrong.

    ``prefix`` is where the object stands among the user's settings: ``baseline``.
    """
    try:
        return model(**values)
    except ValidationError as error:
        wrong = []
        for detail in error.errors():
            name = ".".join([*([prefix] if prefix else []), *_place(values, detail["loc"])])
            message = detail["msg"].removeprefix("Value error, ").replace("Input should", "should")
            if detail["type"] == "extra_forbidden":
                message = "there is no such setting"
                if len(detail["loc"]) == 1:
                    message += f"; the settings are {', '.join(model.model_fields) or 'none'}"
            wrong.append(f"{name}: {message}" if name else message)
        raise BadUse("; ".join(wrong)) from None


def _place(values: Any, loc: Sequence[int | str]) -> list[str]:
    """A setting's name as a user writes it, without pydantic's tags of unions, which are no keys of the values."""
    names = []
    for part in loc:
        if not isinstance(values, Mapping) or part in values:
            names.append(str(part))
            values = values.get(part) if isinstance(values, Mapping) else None
    return names
