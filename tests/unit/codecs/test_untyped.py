"""Values that nobody annotated: JSON's own kinds come back exactly, all others are refused."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import json
import math
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest

from outlast.codecs import JsonCodec
from outlast.errors import NotSerializable

codec = JsonCodec()


def kind(value: object) -> str:
    """A test id without addresses, which would differ between pytest's workers."""
    return type(value).__name__


class Colour(enum.Enum):
    RED = "red"


class Text(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Item:
    sku: str


class Account:
    """Neither a dataclass nor anything else that says what it holds."""


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("not now")


class MyInt(int):
    pass


class MyStr(str):
    __slots__ = ()


EXACT: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**4000,
    0.1,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    1.0,
    "",
    "\0",
    "a\0b\u2028\u2029\x7f\x1b",
    "\U0001f600 é ~",
    "\\\"'/",
    [],
    {},
    [[], {}, [[]]],
    {"": 0, " ": 1, "\0": 2},
    {"z": 1, "a": 2, "m": {"y": 1, "b": 2}},
    [1, 1.0, True, "1", None],
]


@pytest.mark.proves("I28")
@pytest.mark.parametrize("value", EXACT, ids=kind)
def test_json_native_values_come_back_exactly(value: Any) -> None:
    """Same value, same types, same order of keys, and valid JSON in between."""
    data, back = codec.roundtrip(value)
    assert identical(back, value)
    assert identical(codec.decode(data), value)
    assert identical(codec.decode(codec.encode(value)), value)
    assert identical(json.loads(bytes(data)), value)


REFUSED: list[tuple[Any, str]] = [
    ((1, 2), "tuple[int, ...]"),
    ({1}, "set[str]"),
    (frozenset({1}), "frozenset[str]"),
    (b"x", "as bytes"),
    (bytearray(b"x"), "as bytearray"),
    (memoryview(b"x"), "memoryview"),
    (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "as datetime"),
    (dt.date(2026, 1, 1), "as date"),
    (dt.time(1), "as time"),
    (dt.timedelta(1), "as timedelta"),
    (Decimal("1.10"), "as Decimal"),
    (uuid.UUID(int=1), "as UUID"),
    (math.nan, "nan is not a number"),
    (math.inf, "inf is not a number"),
    (-math.inf, "-inf is not a number"),
    ("\ud800", "lone surrogate"),
    ("ok \udfff", "lone surrogate"),
    (10**5000, "digits"),
    ({1: 2}, "key 1 is a value of type int"),
    ({None: 2}, "key None"),
    ({True: 2}, "key True"),
    ({1.5: 2}, "key 1.5"),
    ({(1, 2): 3}, "key (1, 2)"),
    ({10**5000: 1}, "key <int>"),
    ({Shy(): 1}, "key <Shy>"),
    ({Shy()}, "Shy has no JSON form"),
    ({Text.A: 2}, "key <Text.A"),
    ({"1": 1, 1: 2}, "key 1 is"),
    ({"\ud800": 1}, "key '\\ud800'"),
    (collections.OrderedDict(a=1), "to dict"),
    (collections.defaultdict(int), "to dict"),
    (collections.Counter("a"), "to dict"),
    (collections.deque([1]), "deque"),
    (MyInt(1), "to int"),
    (MyStr("a"), "to str"),
    (Colour.RED, "as Colour"),
    (Text.A, "as Text"),
    (Number.ONE, "as Number"),
    (Point(1, 2), "as Point"),
    (Item("a"), "as Item"),
    (Account(), "dataclass"),
    (object(), "object"),
    (1j, "complex"),
    (range(3), "range"),
    (iter([1]), "list(value)"),
    (print, "never code"),
    (int, "never code"),
    (ValueError("x"), "str(error)"),
    (msgspec.Raw(b"1"), "Raw"),
    (msgspec.Raw(b"garbage"), "cannot be decoded again"),
]


@pytest.mark.proves("I28", "S3", "S4")
@pytest.mark.parametrize("value, advice", REFUSED, ids=kind)
@pytest.mark.parametrize("annotation", [Any, object], ids=["Any", "object"])
def test_anything_else_is_refused_with_advice(value: Any, advice: str, annotation: Any) -> None:
    """No silent conversion and no weaker form: the error says what to do instead."""
    with pytest.raises(NotSerializable) as refused:
        codec.encode(value, annotation, where="argument 'order'")
    assert str(refused.value).startswith("argument 'order'")
    assert advice in str(refused.value)


HIDING_PLACES: list[tuple[Any, Any]] = [
    (lambda value: [value], Any),
    (lambda value: {"a": {"b": [value]}}, Any),
    (lambda value: [value], list),
    (lambda value: [value], list[Any]),
    (lambda value: [value], list[object]),
    (lambda value: {"a": value}, dict),
    (lambda value: {"a": value}, dict[str, Any]),
    (lambda value: {"a": value}, dict[str, object]),
    (lambda value: (value,), tuple),
    (lambda value: (1, value), tuple[int, Any]),
    (lambda value: [value], list[Any] | None),
]


@pytest.mark.proves("I28")
@pytest.mark.parametrize("value", [value for value, _ in REFUSED], ids=kind)
@pytest.mark.parametrize("hide, annotation", HIDING_PLACES, ids=kind)
def test_nothing_is_converted_inside_containers_of_any(
    hide: Any, annotation: Any, value: Any
) -> None:
    """`Any` inside an annotation is as strict as no annotation."""
    with pytest.raises(NotSerializable):
        codec.encode(hide(value), annotation)


PLACES: list[tuple[Any, str]] = [
    ({"items": [1, 2, 3, {"price": Decimal(1)}]}, "value → items[3].price: "),
    ([[], [(1,)]], "value → [1][0]: "),
    ({"with space": {1}}, "value → ['with space']: "),
    ({"a": {"b": object()}}, "value → a.b: "),
    ({"a": ["x", "\ud800"]}, "value → a[1]: "),
    ({"a": {"\ud800": 1}}, "value → a key '\\ud800': "),
    ({"a": {2: 1}}, "value → a: the key 2 "),
    ({"a": [0.0, math.nan]}, "value → a[1]: nan "),
    (b"", "value: "),
]


@pytest.mark.proves("I28")
@pytest.mark.parametrize("value, beginning", PLACES, ids=kind)
def test_the_error_names_the_place(value: Any, beginning: str) -> None:
    """The path inside the value stands at the head of the message."""
    with pytest.raises(NotSerializable) as refused:
        codec.encode(value)
    assert str(refused.value).startswith(beginning)


@pytest.mark.proves("I28")
def test_a_generator_or_a_coroutine_gets_its_own_advice() -> None:
    """Both are easily returned by mistake."""

    def numbers() -> Iterator[int]:
        yield 1

    async def work() -> None: ...

    coroutine = work()
    with pytest.raises(NotSerializable, match=r"list\(value\)"):
        codec.encode(numbers())
    with pytest.raises(NotSerializable, match="Await it first"):
        codec.encode(coroutine)
    coroutine.close()


@pytest.mark.proves("I28")
def test_the_decoded_value_is_a_copy() -> None:
    """What is handed on is what a replay would see, not the object that was given."""
    given = {"a": [1]}
    data, back = codec.roundtrip(given)
    given["a"].append(2)
    assert back == {"a": [1]} == codec.decode(data)
    assert codec.decode(data) is not codec.decode(data)


def identical(one: Any, other: Any) -> bool:
    """Equal in value and type, by another road than the codec's own."""
    return repr(one) == repr(other)
