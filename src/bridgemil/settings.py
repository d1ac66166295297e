"""Reading settings objects: pydantic's findings as one sentence that names the setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from bridgemil.errors import BadUse

Model = TypeVar("Model", bound=BaseModel)


TAGS = ("kind", "objective")  # fields that tell the members of a union apart


def parse(model: type[Model], values: Mapping[str, Any], prefix: str = "") -> Model:
    """Build a settings object, or raise ``BadUse`` naming every setting that is wrong.

    ``prefix`` is where the object stands among the user's settings: ``baseline``.
    """
    try:
        return model(**values)
    except ValidationError as error:
        wrong = []
        for detail in error.errors():
            place, owner = _place(model, detail["loc"])
            name = ".".join([*([prefix] if prefix else []), *place])
            message = detail["msg"].removeprefix("Value error, ").replace("Input should", "should")
            if detail["type"] == "extra_forbidden":
                known = [field for field in owner.model_fields if field not in TAGS]
                message = f"there is no such setting; the settings are {', '.join(known) or 'none'}"
            wrong.append(f"{name}: {message}" if name else message)
        raise BadUse("; ".join(wrong)) from None


def _place(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[list[str], type[BaseModel]]:
    """A setting's name as a user writes it, and the object it belongs to; pydantic's union tags are left out."""
    names, owner, choices = list[str](), model, list[type[BaseModel]]()
    for part in loc:
        if tagged := [choice for choice in choices if part in _tags(choice)]:
            owner, choices = tagged[0], []
            continue
        names.append(str(part))
        field = owner.model_fields.get(str(part))
        choices = _models(field.annotation) if field is not None else []
        owner = choices[0] if len(choices) == 1 and part != loc[-1] else owner
    return names, owner


def _tags(model: type[BaseModel]) -> set[Any]:
    """The values by which a union knows this member."""
    return {
        value for tag in TAGS if tag in model.model_fields for value in get_args(model.model_fields[tag].annotation)
    }


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [inner for part in get_args(annotation) for inner in _models(part)]
