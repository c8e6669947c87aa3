"""JSON schemas: the form of a value as data, and whether a value has it.

The schema of a type is stored where a value of that type will be sent by others (the answer to a question). A sender
that does not have the type checks its value against the schema; the receiver decodes it by the type, and decides.

The check knows the keywords that msgspec and pydantic write. Others do not restrict a value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import msgspec

from outlast.codecs import models

MAX_DEPTH = 64


def schema_of(type: Any) -> msgspec.Raw | None:
    """The JSON schema of the values of a type; None if every value fits, or the type has no schema."""
    try:
        if models.is_model(type):
            found = type.model_json_schema(by_alias=False)
        else:
            found = msgspec.json.schema(type, schema_hook=lambda _: {})
    except Exception:  # noqa: BLE001 - types fail as they like; without a schema the receiver checks alone
        return None
    return msgspec.Raw(msgspec.json.encode(found)) if found else None


def problem_in(value: Any, schema: Any, root: Any = None) -> str | None:
    """Why a value, as JSON data, does not fit a schema, which is a part of `root`; None if it does."""
    return next(_Check(schema if root is None else root).problems(value, schema, "", 0), None)


def resolved(schema: Any, root: Any) -> dict[str, Any]:
    """A part of a schema in place of a reference to it."""
    while isinstance(schema, dict) and "$ref" in schema:
        part = root
        for name in str(schema["$ref"]).removeprefix("#/").split("/"):
            part = part.get(name.replace("~1", "/").replace("~0", "~"), {})
        schema = part
    return schema if isinstance(schema, dict) else {}


_KINDS: dict[str, Any] = {
    "null": type(None),
    "boolean": bool,
    "string": str,
    "array": list,
    "object": dict,
    "integer": int,
    "number": (int, float),
}
_WORDS = {
    "null": "nothing",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "an object",
    "integer": "a whole number",
    "number": "a number",
}
_FORMATS: dict[str, Any] = {
    "date-time": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "uuid": UUID,
    "decimal": Decimal,
}


class _Check:
    def __init__(self, root: Any) -> None:
        self._root = root

    def problems(self, value: Any, schema: Any, path: str, depth: int) -> Iterator[str]:
        """What is wrong with a value, one by one."""
        if schema is False or depth > MAX_DEPTH:
            yield _at(path, "no value is possible here")
            return
        schema = resolved(schema, self._root)
        kinds = schema.get("type")
        names = [kinds] if isinstance(kinds, str) else list(kinds or ())
        if names and not any(_is(value, name) for name in names):
            yield _at(path, f"needs {' or '.join(_WORDS.get(name, name) for name in names)}")
            return
        yield from self._choices(value, schema, path, depth)
        match value:
            case str():
                yield from _text_problems(value, schema, path)
            case bool() | None:
                pass
            case int() | float():
                yield from _number_problems(value, schema, path)
            case list():
                yield from self._list_problems(value, schema, path, depth)
            case dict():
                yield from self._object_problems(value, schema, path, depth)

    def _choices(self, value: Any, schema: dict[str, Any], path: str, depth: int) -> Iterator[str]:
        if "enum" in schema and not _is_one_of(value, schema["enum"]):
            yield _at(path, f"needs one of {', '.join(map(_shown, schema['enum']))}")
        if "const" in schema and not _is_one_of(value, [schema["const"]]):
            yield _at(path, f"needs {_shown(schema['const'])}")
        for part in schema.get("allOf", ()):
            yield from self.problems(value, part, path, depth + 1)
        choices = schema.get("anyOf") or schema.get("oneOf") or ()
        found = [next(self.problems(value, one, path, depth + 1), None) for one in choices]
        if found and all(found):
            yield " or ".join(dict.fromkeys(cast(list[str], found)))

    def _list_problems(
        self, value: list[Any], schema: dict[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        if len(value) < schema.get("minItems", 0):
            yield _at(path, f"needs at least {schema['minItems']} items")
        if len(value) > schema.get("maxItems", len(value)):
            yield _at(path, f"may have {schema['maxItems']} items")
        first = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        for index, part in enumerate(value):
            inner = first[index] if index < len(first) else rest
            yield from self.problems(part, inner, f"{path}[{index}]", depth + 1)

    def _object_problems(
        self, value: dict[str, Any], schema: dict[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        for name in schema.get("required", ()):
            if name not in value:
                yield _at(_inside(path, name), "is missing")
        known = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name, part in value.items():
            inner = known.get(name, others)
            if inner is False:
                yield _at(_inside(path, name), "is not a field")
            else:
                yield from self.problems(part, inner, _inside(path, name), depth + 1)


def _text_problems(value: str, schema: dict[str, Any], path: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0):
        yield _at(path, f"needs at least {schema['minLength']} characters")
    if len(value) > schema.get("maxLength", len(value)):
        yield _at(path, f"may have {schema['maxLength']} characters")
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        try:
            fits = re.search(pattern, value) is not None
        except re.error:
            fits = True
        if not fits:
            yield _at(path, f"does not match {pattern!r}")
    read = _FORMATS.get(str(schema.get("format")))
    if read is not None:
        try:
            read(value.replace("Z", "+00:00"))
        except (ValueError, ArithmeticError):
            yield _at(path, f"is not a {schema['format']}")


def _number_problems(value: float, schema: dict[str, Any], path: str) -> Iterator[str]:
    limits = {
        "minimum": (operator.ge, "at least"),
        "maximum": (operator.le, "at most"),
        "exclusiveMinimum": (operator.gt, "more than"),
        "exclusiveMaximum": (operator.lt, "less than"),
    }
    for name, (fits, words) in limits.items():
        if name in schema and not fits(value, schema[name]):
            yield _at(path, f"needs {words} {schema[name]}")
    step = schema.get("multipleOf")
    if step and Decimal(str(value)) % Decimal(str(step)):
        yield _at(path, f"needs a multiple of {step}")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS.get(kind, object))


def _is_one_of(value: Any, allowed: list[Any]) -> bool:
    return any(value == one and isinstance(value, bool) is isinstance(one, bool) for one in allowed)


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _at(path: str, problem: str) -> str:
    return f"{path} {problem}" if path else f"it {problem}"


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
