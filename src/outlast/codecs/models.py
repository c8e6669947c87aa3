"""Pydantic models, for those who use them. Nothing here imports pydantic.

A value can only be a model if its process has imported pydantic already, so looking into
``sys.modules`` is enough. Models have JSON of their own, with aliases, validators and
serializers; outlast asks them for it and embeds the text.

Values are stored under field names, not aliases, since one field may have two aliases that differ
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
    # round_trip leaves computed fields out and lets Json[] fields be read again. Warnings would
    # be about values of the wrong type; those do not come back the same, and are refused later.
    text = model.model_dump_json(round_trip=True, by_alias=False, warnings=False)
    return msgspec.Raw(text.encode())


def read(kind: Any, data: msgspec.Raw | bytes) -> Any:
    """The model of class `kind` in JSON text `data`; `ValueError` with the place if there is none."""
    try:
        return kind.model_validate_json(bytes(data), **_by_name())
    except ValueError as error:
        # Pydantic's own text quotes the input, which may be secret, and runs over many lines.
        raise ValueError(_first_line(error)) from error


def state(model: Any) -> tuple[Any, Any, Any]:
    """All that makes two models of one class equal in pydantic's eyes."""
    return (model.__dict__, model.__pydantic_extra__, model.__pydantic_private__)


@lru_cache(maxsize=1)
def _by_name() -> dict[str, bool]:
    # Before 2.11 a model with aliases says itself whether it can be read by name
    # (`populate_by_name`). One that cannot fails to come back, and so is refused before a write.
    version = sys.modules["pydantic"].VERSION.split(".")
    return {"by_name": True} if (int(version[0]), int(version[1])) >= (2, 11) else {}


def _first_line(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error).splitlines()[0]
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return f"{first['msg']} (field {place})" if place else str(first["msg"])
