"""Is what came back what was given? Equal in value and in type, at every depth.

JSON knows six kinds of values and Python many more, so an encoder has to bend some: msgspec turns
NaN to null, a tuple to an array, bytes to text and a subclass to its base, and each is right for
somebody. Rather than keep a list of all that may be bent, the codec decodes what it encoded and
compares. Python's ``==`` is too kind for that (``1 == True == 1.0``, an enum member equals its
value, an ``OrderedDict`` equals a dict), hence `same`.

It runs for every value stored, so there is a call per container and none per plain value.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec

from outlast.codecs import models


def same(given: Any, back: Any, depth: int) -> bool:
    """Whether `back` is `given` again, types included.

    One difference is allowed: an int may come back as the float it equals, since Python lets an
    int stand wherever a float is annotated (and only there would it come back so).

    Raises `RecursionError` if the value holds more than `depth` containers inside each other.
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
    for one, other in zip(ours, theirs):  # noqa: B905 - just compared; `strict` takes its time
        kind = type(one)
        if kind is type(other) and kind in _PLAIN:  # as above, but without a call
            if one != other:
                return False
        elif not same(one, other, depth - 1):
            return False
    return True


# Of these, two of one type that are equal cannot be told apart. (-0.0 and 0.0 can, but a number's
# text keeps the sign.)
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, UUID, dt.date, dt.timedelta})


Unfold = Callable[[Any], Sequence[Any]]
Rule = Callable[[Any, Any, int], bool]

_KNOWN: dict[type, tuple[Unfold | None, Rule]] = {}


def _learn(kind: type[Any]) -> tuple[Unfold | None, Rule]:
    if len(_KNOWN) >= 4096:  # a program that makes classes without end must not fill the memory
        _KNOWN.clear()
    _KNOWN[kind] = known = _unfolding(kind), _rule(kind)
    return known


# -- other containers, which unfold to what they hold, in order -----------------------------------


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
    # attrgetter of one name returns the bare value, and of none it cannot be made.
    return lambda value: [getattr(value, name) for name in names]


def _model(value: Any) -> list[Any]:
    fields, extra, private = models.state(value)
    return [*fields, *fields.values(), extra, private]


# -- the others, which take a rule of their own ---------------------------------------------------


def _rule(kind: type[Any]) -> Rule:
    return next((rule for base, rule in _RULES if issubclass(kind, base)), _equal)


def _identical(given: Any, back: Any, _depth: int) -> bool:
    return given is back


def _members(given: Any, back: Any, depth: int) -> bool:
    if given != back:
        return False
    # A set has no order to pair its members by, but equal members find each other by hash.
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
    # A zone with daylight saving knows no offset without a date and answers None. So such a zone
    # never equals the fixed offset that ISO 8601 made of it, although the instant does.
    return None if moment.tzinfo is None else moment.tzinfo.utcoffset(None)


def _decimal(given: Decimal, back: Decimal, _depth: int) -> bool:
    # NaN would be restored, but is not equal to itself; infinity goes the way of the floats.
    return given.is_finite() and given.as_tuple() == back.as_tuple()


def _equal(given: Any, back: Any, _depth: int) -> bool:
    return bool(given == back)


_RULES: tuple[tuple[type | tuple[type, ...], Rule], ...] = (
    (enum.Enum, _identical),
    ((set, frozenset), _members),
    ((dt.datetime, dt.time), _moment),
    (Decimal, _decimal),
)
