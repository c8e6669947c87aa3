"""Where in a value the trouble is, and what to do about it: the words of the codec's errors.

Nothing here runs unless a value has been refused, so it may take its time. The rules of what is
refused are not repeated: `first_different` asks `same`, and `first_failing` asks the encoder
itself, of ever smaller parts, until one part fails although all of its own parts pass.
"""

from __future__ import annotations

import datetime as dt
import enum
import inspect
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

from outlast.codecs import models
from outlast.codecs.fidelity import field_names, same

Found = tuple[str, Any]
"""A path inside a value, and what is there."""


def first_different(given: Any, back: Any, depth: int, path: str = "") -> tuple[str, Any, Any]:
    """The innermost place at which `back` is not `given`: path, given there, back there."""
    if type(given) is type(back):
        theirs = dict(parts(back))
        ours = dict(parts(given))
        if ours.keys() == theirs.keys():
            for step, part in ours.items():
                if not same(part, theirs[step], depth):
                    return first_different(part, theirs[step], depth - 1, path + step)
    return path, given, back


def first_failing(value: Any, fails: Callable[[Any], bool], depth: int, path: str = "") -> Found:
    """The innermost part of `value` that fails; raises `RecursionError` beyond `depth`."""
    if depth < 0:
        raise RecursionError
    for step, part in parts(value):
        if fails(part):
            return first_failing(part, fails, depth - 1, path + step)
    return path, value


def parts(value: Any) -> Iterator[Found]:
    """What a container holds, each with its step in a path; nothing for other values."""
    if isinstance(value, dict):
        for key, part in value.items():
            if isinstance(key, str) and not _storable(key):
                yield f" key {_shown(key)}", key
            yield _key_step(key), part
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", None)  # a NamedTuple
        for index, part in enumerate(value):
            yield (f".{names[index]}" if names else f"[{index}]"), part
    elif isinstance(value, set | frozenset):
        for part in value:
            yield f"{{{_shown(part)}}}", part
    else:
        for name in _names(value):
            yield f".{name}", getattr(value, name, None)


def place(where: str, path: str) -> str:
    """``argument 'order' → items[3].price``: the name of the value, and the path inside it."""
    path = path.strip().removeprefix(".")
    return f"{where} → {path}" if path else where


def split(message: str) -> tuple[str, str]:
    """The path and the complaint in msgspec's message ``Expected … - at `$.items[3]```."""
    match = _AT.fullmatch(message)
    complaint, key, path = match.groups() if match else (message, None, "")
    complaint = complaint.replace("Expected", "expected", 1)
    return path, f"{complaint} (as a key)" if key else complaint


_AT = re.compile(r"(.*?) - at `(?:(key)` in `)?\$(.*)`", re.DOTALL)


def no_form(value: Any) -> str:
    """Why `value`, alone, has no JSON form, and what to do."""
    if type(value) is str:
        return (
            "the text holds a lone surrogate, half of a character that no encoding can store. "
            "Mend it where it comes in: text.encode('utf-8', 'replace').decode()"
        )
    if type(value) is int:
        return (
            "the int has more digits than Python writes (sys.set_int_max_str_digits). Keep it as "
            "bytes: value.to_bytes(...)"
        )
    if isinstance(value, dict):
        return _keys(value, {})
    return f"{_a(value)} has no JSON form. {_remedy(value)}"


def would_change(given: Any, back: Any) -> str:
    """Why `given` was refused, when it would have come back as `back`; and what to do."""
    kind = type(given)
    if not_finite(given):
        return f"{given} is not a number that JSON has. Use None, or a string that says it"
    if kind is int and isinstance(back, float):
        return "the int is not exactly a float, as which it is annotated. Annotate it as int"
    if kind is not type(back):
        return f"{_a(given)} would come back as {_a(back)}. {_remedy(given)}"
    if kind is dict:
        return _keys(given, back)
    if isinstance(given, dt.datetime | dt.time):
        return _zone(given)
    if isinstance(given, set | frozenset):
        return f"members of the {kind.__name__} would come back changed. Annotate their type too"
    return (
        f"{_a(given)} would come back different. Its own code (a constructor, a validator or a "
        "serializer) does not restore what it wrote, or it holds state that is not a field"
    )


def not_finite(value: Any) -> bool:
    """Whether this is a NaN or an infinity; as a float, msgspec would write it as null."""
    if isinstance(value, Decimal):
        return not value.is_finite()
    return isinstance(value, float) and not math.isfinite(value)


def holds_not_finite(value: Any, depth: int) -> bool:
    """Whether there is a NaN or an infinity anywhere in `value`."""
    return not_finite(value) or (
        depth > 0 and any(holds_not_finite(part, depth - 1) for _, part in parts(value))
    )


def annotation(kind: Any) -> str:
    """An annotation as a user would write it."""
    return kind.__qualname__ if inspect.isclass(kind) else str(kind).replace("typing.", "")


# -- wording --------------------------------------------------------------------------------------


def _a(value: Any) -> str:
    return "None" if value is None else f"a value of type {annotation(type(value))}"


def _keys(given: dict[Any, Any], back: dict[Any, Any]) -> str:
    odd = [key for key in given if type(key) is not str]
    if odd:
        return (
            f"the key {_shown(odd[0])} is {_a(odd[0])}, and JSON's keys are text. Annotate the "
            "dict with its keys' type (dict[int, ...], dict[UUID, ...]) or make each key a str"
        )
    lost = [key for key in given if key not in back]
    if lost:
        return f"the key {_shown(lost[0])} is not in the annotation, and would be lost"
    return "its keys would come back in another type. Pass keys of the type that is annotated"


def _zone(value: dt.datetime | dt.time) -> str:
    if value.tzinfo is None:
        return "fold=1 would be lost. Use a time in UTC, or clear it: value.replace(fold=0)"
    return (
        f"the time zone {value.tzinfo} would come back as a fixed offset in whole minutes. Convert "
        "it with value.astimezone(timezone.utc), and keep the zone's name in a field of its own"
    )


def _remedy(value: Any) -> str:
    kind = type(value)
    if kind in _EXAMPLES:
        return f"Annotate this place, for instance as {_EXAMPLES[kind]}, or convert the value first"
    if kind in _DATA or isinstance(value, enum.Enum) or _names(value) or hasattr(kind, "_fields"):
        return f"Annotate this place as {annotation(kind)}, or convert the value first"
    for base in (*_EXAMPLES, *_DATA):
        if isinstance(value, base):
            return f"Convert it to {base.__name__} first"
    if inspect.isawaitable(value):
        return "Await it first, and pass the result"
    if isinstance(value, Iterator):
        return "Pass a list: list(value)"
    if isinstance(value, BaseException):
        return "Pass what you need of the error as data, for instance str(error)"
    if callable(value):
        return "Values are data, never code: pass a name and look the function up where it runs"
    if kind.__module__ == "builtins":
        return "Convert it to data first"
    return (
        f"Make {annotation(kind)} a dataclass or a msgspec.Struct and annotate this place with it, "
        "or convert the value first"
    )


_EXAMPLES: dict[type, str] = {
    tuple: "tuple[int, ...]",
    set: "set[str]",
    frozenset: "frozenset[str]",
    list: "list[int]",
    dict: "dict[str, int]",
}
_DATA: tuple[type, ...] = (
    *(bool, int, float, str, bytes, bytearray, type(None)),
    *(dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, UUID),
)


def _names(value: Any) -> tuple[str, ...]:
    kind = type(value)
    if models.is_model(kind):
        fields, extra, private = models.state(value)
        return (*fields, *(extra or ()), *(private or ()))
    return field_names(kind) or ()


def _key_step(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_shown(key)}]"


def _shown(value: Any) -> str:
    try:
        return ascii(value)[:60]
    except Exception:  # noqa: BLE001 - an error in __repr__ must not hide the one being told
        return f"<{annotation(type(value))}>"


def _storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
