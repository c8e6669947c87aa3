"""Values as JSON text and back, for export, logs and event payloads.

msgspec cannot read a field of type ``Raw | None``: in a union it takes the bytes for nothing but
null. So a struct with such fields is read through a twin whose raw fields default to *absent*,
which then become None. A raw ``null`` that was really written stays a raw ``null``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import NODEFAULT, Raw, Struct
from msgspec.structs import asdict

from outlast.errors import Undecodable

T = TypeVar("T", bound=Struct)

_ABSENT = Raw(b"")
_ENCODER = msgspec.json.Encoder()


to_json: Callable[[Struct], bytes] = _ENCODER.encode
"""The value as JSON text. Fields that have their default are left out."""


def from_json(data: bytes | Raw, type: type[T], *, where: str = "value") -> T:
    """The value that `to_json` was given. Unknown fields are ignored and missing ones get their
    default; `Undecodable` if the text is not of this type."""
    try:
        value: T = reader(type)(data)
    except DAMAGE as error:
        raise Undecodable(f"{where} is not a valid {type.__name__}: {error}") from error
    return value


DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a reader raises if the text is not of its type."""


@cache
def reader(type: type[T]) -> Callable[[bytes | Raw], T]:
    """What reads a value of this type, for those who read many; it raises `DAMAGE`."""
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
