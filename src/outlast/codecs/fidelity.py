"""Is what came back what was given? Equal in value and in type, at every depth.

JSON knows six kinds of values and Python many more, so an encoder has to bend some: msgspec turns
NaN to null, a tuple to an array, bytes to text and a subclass to its base, and each is right for
somebody. Rather than keep a list of all that may be bent, the codec decodes what it encoded and
compares. Python's ``==`` is too kind for that (``1 == True == 1.0``, an enum member equals its
value, an ``OrderedDict`` equals a dict), hence `same`.

It runs for every value stored. Lists of plain values are therefore compared by C code alone, and
Python calls happen per container, not per value.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec

from outlast.codecs import models

Rule = Callable[[Any, Any, int], bool]


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
    return _rule(kind)(given, back, depth)


# Of these, two of one type that are equal cannot be told apart. (-0.0 and 0.0 can, but a number's
# text keeps the sign.)
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, UUID, dt.date, dt.timedelta})


def _items(given: Sequence[Any], back: Sequence[Any], depth: int) -> bool:
    if depth <= 0:
        raise RecursionError
    kinds = list(map(type, given))
    if kinds == list(map(type, back)) and _PLAIN.issuperset(kinds):
        return given == back
    return len(given) == len(back) and all(map(same, given, back, repeat(depth - 1)))


def _entries(given: dict[Any, Any], back: dict[Any, Any], depth: int) -> bool:
    return _items(list(given), list(back), depth) and _items(
        list(given.values()), list(back.values()), depth
    )


def _members(given: Any, back: Any, depth: int) -> bool:
    if depth <= 0:
        raise RecursionError
    if given != back:
        return False
    # A set has no order to pair its members by, but equal members find each other by hash.
    found = {member: member for member in back}
    return all(same(member, found[member], depth - 1) for member in given)


def _moment(given: Any, back: Any, _depth: int) -> bool:
    return bool(
        given.replace(tzinfo=None) == back.replace(tzinfo=None)
        and given.fold == back.fold
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


def _identical(given: Any, back: Any, _depth: int) -> bool:
    return given is back


def _equal(given: Any, back: Any, _depth: int) -> bool:
    return bool(given == back)


_BY_BASE: tuple[tuple[type | tuple[type, ...], Rule], ...] = (
    (enum.Enum, _identical),
    (dict, _entries),
    ((list, tuple), _items),
    ((set, frozenset), _members),
    ((dt.datetime, dt.time), _moment),
    (Decimal, _decimal),
)


@lru_cache(maxsize=4096)
def _rule(kind: type[Any]) -> Rule:
    for base, rule in _BY_BASE:
        if issubclass(kind, base):
            return rule
    names = field_names(kind)
    if names is not None:
        values = _getter(names)
        return lambda given, back, depth: _items(values(given), values(back), depth)
    if models.is_model(kind):
        # The tuple is no level of nesting of its own: its first member is the dict of fields.
        return lambda given, back, depth: _items(models.state(given), models.state(back), depth + 1)
    return _equal


def field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass, Struct or attrs class, and None for anything else."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(field.name for field in attributes)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    # attrgetter of one name returns the bare value, and of none it cannot be made.
    return lambda instance: tuple(getattr(instance, name) for name in names)
