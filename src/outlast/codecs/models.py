"""Pydantic models as values. This module does not import pydantic.

A value can be a model only if its process has imported pydantic, so a lookup in ``sys.modules`` is
enough. Models define their own JSON with validators and serializers; the codec embeds that text.

Values are stored under field names, not aliases, because the two aliases of a field may differ
(``validation_alias``, ``serialization_alias``).
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import msgspec


def is_model(kind: object) -> bool:
    """Whether `kind` is a class of pydantic 2 models."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(kind, type):
        return False
    return issubclass(kind, pydantic.BaseModel) and hasattr(kind, "model_validate_json")


def write(model: Any) -> msgspec.Raw:
    """The model as JSON text."""
    # round_trip leaves computed fields out and makes Json[] fields readable again. Warnings concern
    # values of the wrong type; the comparison after decoding refuses those.
    text = model.model_dump_json(round_trip=True, by_alias=False, warnings=False)
    return msgspec.Raw(text.encode())


def read(kind: Any, data: msgspec.Raw | bytes) -> Any:
    """The model of class `kind` in JSON text `data`; `ValueError` with the field if it is invalid."""
    try:
        return kind.model_validate_json(bytes(data), **_by_name())
    except ValueError as error:
        # Pydantic's message quotes the input, which may be secret, and has many lines.
        raise ValueError(_first_line(error)) from error


def state(model: Any) -> tuple[Any, Any, Any]:
    """The attributes that pydantic's ``==`` compares."""
    return (model.__dict__, model.__pydantic_extra__, model.__pydantic_private__)


@lru_cache(maxsize=1)
def _by_name() -> dict[str, bool]:
    # Before 2.11 the model's `populate_by_name` decides whether it can be read by name. A model that
    # cannot be is not decoded again, and so is refused before a write.
    version = sys.modules["pydantic"].VERSION.split(".")
    return {"by_name": True} if (int(version[0]), int(version[1])) >= (2, 11) else {}


def _first_line(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error).splitlines()[0]
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return f"{first['msg']} (field {place})" if place else str(first["msg"])
