"""Structs as JSON text and back, and the check that their fields have the declared types.

msgspec cannot decode a field of type ``Raw | None``: in a union it accepts only null. So a struct with
such fields is decoded through a generated twin whose raw fields default to *absent*, which becomes None.
A raw ``null`` in the text stays a raw ``null``.

Python does not check annotations: ``Event(metadata={"n": 1})`` raises nothing, and a store that writes it
cannot read it again. So `check_types` checks every value before it is written. Most values of a class
have the same types in the same fields, so each such combination is checked once and cached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Raw, Struct, UnsetType
from msgspec.structs import asdict, astuple

from outlast.errors import InvalidValue, Undecodable

T = TypeVar("T", bound=Struct)

_ABSENT = Raw(b"")
_ENCODER = msgspec.json.Encoder()


to_json: Callable[[Struct], bytes] = _ENCODER.encode
"""The value as JSON text. Fields that have their default are left out."""


def from_json(data: bytes | Raw, type: type[T], *, where: str = "value") -> T:
    """The value that `to_json` has encoded. Unknown fields are ignored and missing ones get their default.
    Raises `Undecodable` if the text is not of this type."""
    try:
        value: T = reader(type)(data)
    except DAMAGE as error:
        raise Undecodable(f"{where} is not a valid {type.__name__}: {error}") from error
    return value


DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that `reader` raises for text of another type."""


@cache
def reader(type: type[T]) -> Callable[[bytes | Raw], T]:
    """The decoder of this type, for repeated use. It raises `DAMAGE` for text of another type."""
    hints = get_type_hints(type)
    optional = tuple(name for name in type.__struct_fields__ if hints[name] == Raw | None)
    if not optional:
        return msgspec.json.Decoder(type).decode
    fields: list[Any] = []
    for field in msgspec.structs.fields(type):
        if field.name in optional:
            fields.append((field.name, Raw, _ABSENT))
        elif field.default is not NODEFAULT:
            fields.append((field.name, hints[field.name], field.default))
        elif field.default_factory is not NODEFAULT:
            factory = msgspec.field(default_factory=field.default_factory)
            fields.append((field.name, hints[field.name], factory))
        else:
            fields.append((field.name, hints[field.name]))
    twin = msgspec.defstruct(f"{type.__name__}Text", fields, kw_only=True)
    decode = msgspec.json.Decoder(twin).decode

    def read(data: bytes | Raw) -> T:
        fields = asdict(decode(data))
        for name in optional:
            if fields[name] is _ABSENT:
                fields[name] = None
        return type(**fields)

    return read


MAX_BITS = 63
MAX_KNOWN_SHAPES = 1000

known_shapes: set[tuple[type, ...]] = set()
"""Cache: classes with types of their fields that have passed the check."""
_WORDS = {str: "text", int: "an integer", Raw: "msgspec.Raw", NoneType: "None", dict: "a dict"}


def check_types(value: Struct, what: str) -> None:
    """Raise if a field of `value` does not have its declared type; `what` names the value."""
    fields = astuple(value)
    shape = (type(value), *map(type, fields))
    if shape not in known_shapes:
        _check_shape(value, fields, what)
        if len(known_shapes) < MAX_KNOWN_SHAPES:
            known_shapes.add(shape)
    for position, kinds in _looked_into(type(value)):
        found = fields[position]
        if not found:
            continue
        if type(found) is int:
            if found.bit_length() > MAX_BITS:
                name = value.__struct_fields__[position]
                raise InvalidValue(f"{name} of {what} is {found}: use an integer of 64 bits")
        elif type(found) is dict:
            for key, inner in found.items():
                if not isinstance(key, str) or not isinstance(inner, kinds):
                    name = value.__struct_fields__[position]
                    raise InvalidValue(
                        f"{name} of {what} has {key!r}: {inner!r}: "
                        f"use text as a name and {_declared(kinds)} as a value"
                    )


def _check_shape(value: Struct, fields: tuple[Any, ...], what: str) -> None:
    for name, kinds, found in zip(
        value.__struct_fields__, _kinds(type(value)), fields, strict=True
    ):
        # In Python True is an int; a database would return 1 for it.
        fits = isinstance(found, kinds) and (not isinstance(found, bool) or bool in kinds)
        if not fits:
            raise InvalidValue(f"{name} of {what} is {found!r}: use {_declared(kinds)}")


@cache
def _kinds(type: type[Struct]) -> tuple[tuple[type, ...], ...]:
    """The types that each field may have, in the order of declaration."""
    hints = get_type_hints(type)
    return tuple(_alternatives(hints[name]) for name in type.__struct_fields__)


@cache
def _looked_into(type: type[Struct]) -> tuple[tuple[int, tuple[type, ...]], ...]:
    """The positions of integers, and of dicts with the types that their values may have."""
    hints = get_type_hints(type)
    found: list[tuple[int, tuple[Any, ...]]] = []
    for position, name in enumerate(type.__struct_fields__):
        options = get_args(hints[name]) if _is_union(hints[name]) else (hints[name],)
        if int in options and str not in options:  # else it is stored as text
            found.append((position, ()))
        found += [
            (position, _alternatives(get_args(option)[1]))
            for option in options
            if get_origin(option) is dict
        ]
    return tuple(found)


def _alternatives(hint: Any) -> tuple[type, ...]:
    if _is_union(hint):
        return tuple(kind for option in get_args(hint) for kind in _alternatives(option))
    if hint is float:
        return (float, int)
    return (get_origin(hint) or hint,)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _declared(kinds: tuple[type, ...]) -> str:
    shown = [_WORDS.get(kind, kind.__name__) for kind in kinds if kind is not UnsetType]
    return " or ".join(shown)
