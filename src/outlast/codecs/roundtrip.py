"""Whether a decoded value is the value that was encoded, in value and type, at every depth.

JSON has six kinds of values and Python has many more, so an encoder converts some: msgspec turns NaN
into null, a tuple into an array, bytes into text and a subclass into its base. Instead of keeping a list
of such conversions, the codec decodes what it encoded and compares. Python's ``==`` is too lenient for
that (``1 == True == 1.0``, an enum member equals its value, an ``OrderedDict`` equals a dict), hence
`same`. It runs for every stored value, so it makes a call per container and none per plain value.

The second half of the module explains a refusal: the path to the part that is refused, and what to do.
It runs only after a refusal, so its speed does not matter. It does not repeat the rules:
`first_different` calls `same`, and `first_failing` calls the encoder on smaller and smaller parts, until
a part fails whose own parts all pass.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec

from outlast.codecs import models


def same(given: Any, back: Any, depth: int) -> bool:
    """Whether the decoded value `back` equals `given`, types included.

    One difference is allowed: an int may come back as the equal float, because Python accepts an int
    where a float is annotated (and an int is decoded as a float only there).

    Raises `RecursionError` if containers are nested deeper than `depth`.
    """
    kind = type(given)
    if kind is not type(back):
        return kind is int and type(back) is float and given == back
    if kind in _PLAIN:
        return bool(given == back)
    ours: Sequence[Any]
    theirs: Sequence[Any]
    if kind is list:
        ours, theirs = given, back
    elif kind is dict:  # keys too, and their order
        ours, theirs = [*given, *given.values()], [*back, *back.values()]
    else:
        unfold, rule = _KNOWN.get(kind) or _learn(kind)
        if unfold is None:
            return rule(given, back, depth)
        ours, theirs = unfold(given), unfold(back)
    if depth <= 0:
        raise RecursionError
    if len(ours) != len(theirs):
        return False
    for one, other in zip(ours, theirs):  # noqa: B905 - the lengths are equal; `strict` is slower
        kind = type(one)
        if kind is type(other) and kind in _PLAIN:  # as above, without a call
            if one != other:
                return False
        elif not same(one, other, depth - 1):
            return False
    return True


# Two equal values of one of these types are indistinguishable. (Except -0.0 and 0.0, but the text of a
# number keeps the sign.)
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, UUID, dt.date, dt.timedelta})


Unfold = Callable[[Any], Sequence[Any]]
Rule = Callable[[Any, Any, int], bool]

_KNOWN: dict[type, tuple[Unfold | None, Rule]] = {}


def _learn(kind: type[Any]) -> tuple[Unfold | None, Rule]:
    if (
        len(_KNOWN) >= 4096
    ):  # a program that creates classes dynamically must not exhaust the memory
        _KNOWN.clear()
    _KNOWN[kind] = known = _unfolding(kind), _rule(kind)
    return known


# -- other containers: a sequence of their members ------------------------------------------------


def _unfolding(kind: type[Any]) -> Unfold | None:
    if issubclass(kind, enum.Enum):
        return None
    if issubclass(kind, list | tuple):
        return _itself
    if issubclass(kind, dict):
        return _entries
    names = field_names(kind)
    if names is not None:
        return _fields(names)
    return _model if models.is_model(kind) else None


def field_names(kind: type[Any]) -> tuple[str, ...] | None:
    """The fields of a dataclass, Struct or attrs class, and None for anything else."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(field.name for field in attributes)


def _itself(value: Sequence[Any]) -> Sequence[Any]:
    return value


def _entries(value: dict[Any, Any]) -> list[Any]:
    return [*value, *value.values()]


def _fields(names: tuple[str, ...]) -> Unfold:
    if len(names) > 1:
        return attrgetter(*names)
    # attrgetter with one name returns the bare value, and with none it raises.
    return lambda value: [getattr(value, name) for name in names]


def _model(value: Any) -> list[Any]:
    fields, extra, private = models.state(value)
    return [*fields, *fields.values(), extra, private]


# -- other types: a rule for each -----------------------------------------------------------------


def _rule(kind: type[Any]) -> Rule:
    return next((rule for base, rule in _RULES if issubclass(kind, base)), _equal)


def _identical(given: Any, back: Any, _depth: int) -> bool:
    return given is back


def _members(given: Any, back: Any, depth: int) -> bool:
    if given != back:
        return False
    # A set has no order, so equal members are paired by hash.
    found = {member: member for member in back}
    return same(list(given), [found[member] for member in given], depth)


def _moment(given: Any, back: Any, _depth: int) -> bool:
    if given.fold != back.fold:
        return False
    if given.tzinfo is back.tzinfo:  # naive, or in timezone.utc: nearly always
        return bool(given == back)
    return bool(
        given.replace(tzinfo=None) == back.replace(tzinfo=None)
        and (given.tzinfo is None) == (back.tzinfo is None)
        and _fixed_offset(given) == _fixed_offset(back)
    )


def _fixed_offset(moment: dt.datetime | dt.time) -> dt.timedelta | None:
    # A zone with daylight saving has no offset without a date and returns None. So it never equals the
    # fixed offset that ISO 8601 turns it into, although the instant is equal.
    return None if moment.tzinfo is None else moment.tzinfo.utcoffset(None)


def _decimal(given: Decimal, back: Decimal, _depth: int) -> bool:
    # NaN would be restored but is not equal to itself; infinity is refused as for floats.
    return given.is_finite() and given.as_tuple() == back.as_tuple()


def _equal(given: Any, back: Any, _depth: int) -> bool:
    return bool(given == back)


_RULES: tuple[tuple[type | tuple[type, ...], Rule], ...] = (
    (enum.Enum, _identical),
    ((set, frozenset), _members),
    ((dt.datetime, dt.time), _moment),
    (Decimal, _decimal),
)

Found = tuple[str, Any]
"""A path inside a value, and what is there."""


def first_different(given: Any, back: Any, depth: int, path: str = "") -> tuple[str, Any, Any]:
    """The innermost difference between `given` and `back`: the path to it, and both parts."""
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
    """The members of a container, each with its step in a path; nothing for other values."""
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
            "the text contains a lone surrogate, which UTF-8 cannot encode. Replace it where the text "
            "is read: text.encode('utf-8', 'replace').decode()"
        )
    if type(value) is int:
        return (
            "the int has more digits than Python converts to text (sys.set_int_max_str_digits). Store it "
            "as bytes: value.to_bytes(...)"
        )
    if isinstance(value, dict):
        return _keys(value, {})
    return f"{_a(value)} has no JSON form. {_remedy(value)}"


def would_change(given: Any, back: Any) -> str:
    """Why `given` is refused, if it is decoded as `back`; and what to do."""
    kind = type(given)
    if not_finite(given):
        return f"{given} is not a number in JSON. Use None or a string instead"
    if kind is int and isinstance(back, float):
        return "the int is annotated as float and is not exactly a float. Annotate it as int"
    if kind is not type(back):
        return f"{_a(given)} would come back as {_a(back)}. {_remedy(given)}"
    if kind is dict:
        return _keys(given, back)
    if isinstance(given, dt.datetime | dt.time):
        return _zone(given)
    if isinstance(given, set | frozenset):
        return f"members of the {kind.__name__} would change. Annotate their type too"
    return (
        f"{_a(given)} would come back different. Its constructor, validator or serializer does not "
        "restore what it wrote, or it has state that is not a field"
    )


def not_finite(value: Any) -> bool:
    """Whether this is NaN or infinity; msgspec writes such a float as null."""
    if isinstance(value, Decimal):
        return not value.is_finite()
    return isinstance(value, float) and not math.isfinite(value)


def holds_not_finite(value: Any, depth: int) -> bool:
    """Whether NaN or infinity is anywhere in `value`."""
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
            f"the key {_shown(odd[0])} is {_a(odd[0])}, and keys in JSON are text. Annotate the dict with "
            "the type of its keys (dict[int, ...], dict[UUID, ...]) or convert each key to str"
        )
    lost = [key for key in given if key not in back]
    if lost:
        return (
            f"the key {_shown(lost[0])} is not in the annotation and would be lost. Add it there, or "
            "remove it from the value"
        )
    return "its keys would come back with another type. Pass keys of the annotated type"


def _zone(value: dt.datetime | dt.time) -> str:
    if value.tzinfo is None:
        return "fold=1 would be lost. Use a time in UTC, or value.replace(fold=0)"
    return (
        f"the time zone {value.tzinfo} would come back as a fixed offset in whole minutes. Convert the "
        "value with value.astimezone(timezone.utc), and store the name of the zone in another field"
    )


def _remedy(value: Any) -> str:
    kind = type(value)
    if kind in _EXAMPLES:
        return f"Annotate it, for instance as {_EXAMPLES[kind]}, or convert the value first"
    if kind in _DATA or isinstance(value, enum.Enum) or _names(value) or hasattr(kind, "_fields"):
        return f"Annotate it as {annotation(kind)}, or convert the value first"
    for base in (*_EXAMPLES, *_DATA):
        if isinstance(value, base):
            return f"Convert it to {base.__name__} first"
    if inspect.isawaitable(value):
        return "Await it first, and pass the result; a plain `def` workflow calls outlast.sync.child(order(…))"
    if isinstance(value, Iterator):
        return "Pass a list: list(value)"
    if isinstance(value, BaseException):
        return "Pass the parts of the error that you need, for instance str(error)"
    if callable(value):
        return "Values are data, never code: pass a name, and look up the function in the step"
    if kind.__module__ == "builtins":
        return "Convert it to data first"
    return (
        f"Make {annotation(kind)} a dataclass or a msgspec.Struct and annotate with it, or convert the "
        "value first"
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
    except Exception:  # noqa: BLE001 - an error in __repr__ must not hide the one being raised
        return f"<{annotation(type(value))}>"


def _storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
