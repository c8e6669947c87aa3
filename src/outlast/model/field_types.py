"""Whether the fields of a value have the types that its class declares.

Python checks no annotation: ``Event(metadata={"n": 1})`` is made without a word, and a store that
writes it cannot read it again. So every value is checked before it is written. Most values of a
class have the same types in the same places: such a shape is checked once and remembered.
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Raw, Struct, UnsetType
from msgspec.structs import astuple

from outlast.errors import InvalidValue

MAX_BITS = 63
MAX_KNOWN_SHAPES = 1000

known_shapes: set[tuple[type, ...]] = set()
"""Classes with the types of their fields that were found to be right."""
_WORDS = {str: "text", int: "an integer", Raw: "msgspec.Raw", NoneType: "None", dict: "a dict"}


def check_types(value: Struct, what: str) -> None:
    """Refuse a value of which a field is not what its class declares; `what` names the value."""
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
        # For Python True is an int. A database gives 1 back, which is not what was written.
        fits = isinstance(found, kinds) and (not isinstance(found, bool) or bool in kinds)
        if not fits:
            raise InvalidValue(f"{name} of {what} is {found!r}: use {_declared(kinds)}")


@cache
def _kinds(type: type[Struct]) -> tuple[tuple[type, ...], ...]:
    """What each field may be, in the order of declaration."""
    hints = get_type_hints(type)
    return tuple(_alternatives(hints[name]) for name in type.__struct_fields__)


@cache
def _looked_into(type: type[Struct]) -> tuple[tuple[int, tuple[type, ...]], ...]:
    """The positions of integers, and of maps with what their values may be."""
    hints = get_type_hints(type)
    found: list[tuple[int, tuple[Any, ...]]] = []
    for position, name in enumerate(type.__struct_fields__):
        options = get_args(hints[name]) if _is_union(hints[name]) else (hints[name],)
        if int in options and str not in options:  # else it is kept as text
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
