"""Reading settings objects: pydantic's findings as one sentence that names the setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

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
            place, owner = _place(model, detail["loc"])
            name = ".".join(place)
            words = detail["msg"].removeprefix("Value error, ").replace("Input should", "should")
            if detail["type"] == "extra_forbidden":
                words = f"there is no such setting; the settings are {', '.join(owner.model_fields)}"
            found.append(f"{name}: {words}" if name else words)
        raise BadUse("; ".join(found)) from None


def _place(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[list[str], type[BaseModel]]:
    """A setting's name as a user writes it, and the object it belongs to; pydantic's union tags are left out."""
    names, owner = [], model
    choices: list[type[BaseModel]] = []
    for part in loc:
        tagged = [one for one in choices if getattr(one.model_fields.get("kind"), "default", None) == part]
        if tagged:
            owner, choices = tagged[0], []
            continue
        names.append(str(part))
        field = owner.model_fields.get(str(part))
        choices = _models(field.annotation) if field is not None else []
        owner = choices[0] if len(choices) == 1 and part != loc[-1] else owner
    return names, owner


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [one for part in get_args(annotation) for one in _models(part)]
