"""Values whose sender declares no type: a signal, an update, an answer, a published value, a report.

JSON's own kinds are stored as they are. Others that Python programs use as plain values (Decimal,
datetime, UUID, bytes, tuple, set …) are stored in their JSON form, and one envelope around the whole
value lists where they are::

    {"~typed": {"value": {"price": "9.99", "tags": ["new"]},
                "types": [["decimal", "price"], ["set", "tags"]]}}

Each entry is a tag of the closed list `TAGS` and the path to a place. User data holds no marker, and
a tag can only build one of these kinds. Dataclasses, models, Structs, named tuples and Enums are
stored as data: the type that the receiver declares restores them, and without one they arrive plain.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Any, get_args
from uuid import UUID

import msgspec

from outlast.codecs import chain, models
from outlast.codecs.roundtrip import field_names

KINDS: dict[type, str] = {
    Decimal: "decimal",
    dt.datetime: "datetime",
    dt.date: "date",
    dt.time: "time",
    dt.timedelta: "timedelta",
    UUID: "uuid",
    bytes: "bytes",
    bytearray: "bytearray",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
}
"""The kinds that are restored without a declared type, and their tags."""
KEYS: dict[type, str] = {
    int: "int-keys",
    UUID: "uuid-keys",
    Decimal: "decimal-keys",
    dt.date: "date-keys",
    dt.datetime: "datetime-keys",
}
"""Likewise dicts whose keys are all of one of these kinds."""
TAGS: dict[str, Any] = {tag: kind for kind, tag in KINDS.items()} | {
    tag: dict.__class_getitem__((kind, Any)) for kind, tag in KEYS.items()
}
_SCALARS = frozenset({type(None), bool, int, float, str})
_HOLDERS = frozenset({dict, list, tuple, set, frozenset})
_UNDECLARED = frozenset({Any, object, list, dict, tuple, set, frozenset})

Data = Callable[[Any], Any]
Entry = list[Any]


class Typed(msgspec.Struct, forbid_unknown_fields=True):
    """What the envelope holds."""

    value: msgspec.Raw
    types: list[Entry]


def has_class(kind: Any) -> bool:
    """Whether values of this class are stored as data that the class itself describes."""
    return (
        issubclass(kind, enum.Enum)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or field_names(kind) is not None
        or models.is_model(kind)
    )


def as_data(value: Any, data: Data, depth: int) -> Any:
    """The value with each object of a class replaced by its `data`; `RecursionError` below `depth`."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if has_class(kind):
        return data(value)
    if depth <= 0 and kind in _HOLDERS:
        raise RecursionError
    if kind is dict:
        return {key: as_data(part, data, depth - 1) for key, part in value.items()}
    if kind in _HOLDERS:
        return kind([as_data(part, data, depth - 1) for part in value])
    return value


def written(value: Any, types: list[Entry], path: tuple[Any, ...] = ()) -> Any:
    """What `as_data` gave, as it is written; `types` gets an entry for each place that has to be restored,
    an outer one before those inside it."""
    kind = type(value)
    if kind in KINDS:
        types.append([KINDS[kind], *path])
    if kind is dict:
        kinds = {type(key) for key in value}
        if len(kinds) == 1 and (tag := KEYS.get(*kinds)) is not None:
            types.append([tag, *path])
            value = {_text(key): part for key, part in value.items()}
        return {key: written(part, types, (*path, key)) for key, part in value.items()}
    if kind not in _HOLDERS:
        return value
    # Members of a set in the order of their text: what is written of equal sets is equal.
    parts = sorted(value, key=_encode) if kind in (set, frozenset) else value
    return [written(part, types, (*path, index)) for index, part in enumerate(parts)]


def restored(value: Any, types: list[Entry]) -> Any:
    """A value read from JSON with the kinds that `types` lists. Raises whatever a wrong entry causes."""
    for tag, *path in reversed(types):
        kind = TAGS[tag]
        if not path:
            value = _converted(value, kind)
            continue
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = _converted(holder[path[-1]], kind)
    return value


def _converted(value: Any, kind: Any) -> Any:
    if type(value) is list and kind in (tuple, set, frozenset):
        return kind(value)
    return msgspec.convert(value, kind, str_keys=True)


def without_types(data: msgspec.Raw) -> msgspec.Raw:
    """The JSON text of a stored value for people to read: without the table of its types."""
    found = chain.unwrap(data)
    if found is None or found[0] != chain.TYPED:
        return data
    try:
        return msgspec.json.decode(found[1], type=Typed).value
    except msgspec.DecodeError:
        return data


def leaves_open(kind: Any) -> bool:
    """Whether a declared type says nothing of some part, so that the parts have to be restored first."""
    try:
        if kind in _UNDECLARED:
            return True
    except TypeError:  # not hashable: the metadata of Annotated
        pass
    return any(leaves_open(part) for part in get_args(kind))


_encode = msgspec.json.Encoder(enc_hook=repr).encode


def _text(key: Any) -> str:
    """A key of a dict as it is written."""
    (text,) = msgspec.json.decode(_encode({key: None}), type=dict[str, None])
    return text
