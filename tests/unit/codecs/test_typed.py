"""Values with an annotation come back in the annotated type, or are refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
import zoneinfo
from collections.abc import Mapping, Sequence
from decimal import Decimal
from inspect import Parameter
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    TypedDict,
    TypeVar,
)

import msgspec
import pytest

from outlast.codecs import JsonCodec

codec = JsonCodec()


def kind(value: object) -> str:
    """A test id without addresses, which would differ between pytest's workers."""
    return value.__name__ if isinstance(value, type) else type(value).__name__


T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Text(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Address(TypedDict):
    street: str


class Partial(TypedDict, total=False):
    a: int
    b: str


@dataclasses.dataclass(frozen=True)
class Item:
    sku: str
    price: Decimal
    note: Any = None
    weight: float | None = None


@dataclasses.dataclass(slots=True)
class Order:
    id: uuid.UUID
    items: list[Item]
    by: dict[str, Item] = dataclasses.field(default_factory=dict)
    parent: Order | None = None
    _secret: int = 0
    made: int = dataclasses.field(default=1, init=False)
    hidden: int = dataclasses.field(default=2, compare=False)


@dataclasses.dataclass(eq=False)
class NoEquality:
    a: int


@dataclasses.dataclass
class One:
    a: tuple[int, ...]


@dataclasses.dataclass
class Nothing:
    pass


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class Account(msgspec.Struct):
    name: str
    tags: set[str] = msgspec.field(default_factory=set)


class Compact(msgspec.Struct, array_like=True, omit_defaults=True, rename="camel"):
    first_name: str
    age: int = 7


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


ITEM = Item("s", Decimal("1.10"), note={"a": [1]}, weight=0.5)
UUID1 = uuid.UUID(int=1)
HALF_PAST = dt.timezone(dt.timedelta(hours=5, minutes=30))

EXACT: list[tuple[Any, Any]] = [
    (None, None),
    (5, int),
    (10**400, int),
    (5, int | None),
    (5, Optional[int]),  # noqa: UP045 - as users write it
    (None, int | None),
    ("x", int | str),
    (1.5, int | float),
    (1, int | float),
    (True, bool),
    (5, UserId),
    (5, Annotated[int, msgspec.Meta(gt=0)]),
    (5, Annotated[int, ["unhashable"]]),
    (5, Parameter.empty),
    ("a", Literal["a", "b"]),
    (1, Literal[1] | None),
    (dt.datetime(2026, 1, 2, 3, 4, 5, 678901), dt.datetime),  # noqa: DTZ001
    (dt.datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=dt.UTC), dt.datetime),
    (dt.datetime(2026, 1, 2, 3, tzinfo=HALF_PAST), dt.datetime),
    (dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime),
    (dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=HALF_PAST), dt.datetime),
    (dt.date(2026, 1, 2), dt.date),
    (dt.time(1, 2, 3, 4), dt.time),
    (dt.time(1, 2, 3, 4, tzinfo=HALF_PAST), dt.time),
    (dt.timedelta.max, dt.timedelta),
    (dt.timedelta.min, dt.timedelta),
    (dt.timedelta(microseconds=-1), dt.timedelta),
    (Decimal("1.10"), Decimal),
    (Decimal("-0"), Decimal),
    (Decimal("1E+400"), Decimal),
    (UUID1, uuid.UUID),
    (b"\0\xff", bytes),
    (b"", bytes),
    (bytearray(b"\xff"), bytearray),
    ([1, 2], list[int]),
    ([1, 2], Sequence[int]),
    ({"a": 1}, Mapping[str, int]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ((), tuple[int, ...]),
    ([(1, b"x")], list[tuple[int, bytes]]),
    ({1, 2}, set[int]),
    ({(1, 2)}, set[tuple[int, int]]),
    (frozenset({b"a"}), frozenset[bytes]),
    ({Item("a", Decimal(1))}, set[Item]),
    ({1: "a", 2**70: "b"}, dict[int, str]),
    ({UUID1: 1}, dict[uuid.UUID, int]),
    ({Colour.RED: 1}, dict[Colour, int]),
    ({Text.A: 1}, dict[Text, int]),
    ({dt.date(2026, 1, 1): 1}, dict[dt.date, int]),
    ({1.5: 1}, dict[float, int]),
    (Colour.RED, Colour),
    (Text.A, Text),
    (Number.ONE, Number),
    (Right.READ | Right.WRITE, Right),
    (Point(1, 2.5), Point),
    ([Point(1)], list[Point]),
    ({"street": "x"}, Address),
    ({"b": "x"}, Partial),
    (ITEM, Item),
    ([ITEM, ITEM], list[Item]),
    (Order(UUID1, [ITEM], {"x": ITEM}, Order(UUID1, []), 5), Order),
    (One((1, 2)), One),
    (Nothing(), Nothing),
    (Box([b"x"]), Box[list[bytes]]),
    (Account("a", {"x"}), Account),
    (Compact("a"), Compact),
    (Compact("a", 8), Compact),
    (Cat("a"), Cat | Dog),
    ([Cat("a"), Dog("a"), 5], list[Cat | Dog | int]),
    ({"~zlib": 1}, dict[str, int]),
]


@pytest.mark.proves("I28")
@pytest.mark.parametrize("value, annotation", EXACT, ids=kind)
def test_annotated_values_come_back_exactly(value: Any, annotation: Any) -> None:
    """The annotation restores the type, at every depth."""
    data, back = codec.roundtrip(value, annotation)
    again = codec.decode(data, annotation)
    assert repr(back) == repr(again) == repr(value)
    assert type(back) is type(again) is type(value)
    assert back == again == value


@pytest.mark.proves("I28")
def test_fields_left_out_of_equality_come_back_too() -> None:
    """What a class compares by does not decide what is stored."""
    order = Order(UUID1, [])
    order.made, order.hidden = 7, 8
    back = codec.roundtrip(order, Order)[1]
    assert (back.made, back.hidden) == (7, 8)
    assert codec.roundtrip(NoEquality(3), NoEquality)[1].a == 3


@pytest.mark.proves("I28")
def test_an_int_may_stand_for_the_float_that_it_equals() -> None:
    """As everywhere in Python; what is handed on is the float that a replay would see."""
    for value, annotation in [(5, float), ([1, 2.5], list[float]), ({1}, set[float])]:
        back = codec.roundtrip(value, annotation)[1]
        assert back == value
    assert type(codec.roundtrip(5, float)[1]) is float
    assert repr(codec.roundtrip({3: 4}, dict[float, float])[1]) == "{3.0: 4.0}"


@pytest.mark.proves("I28")
def test_a_fixed_zone_of_another_make_is_as_good_as_timezone_utc() -> None:
    """A zone that has one offset for ever loses nothing when it is stored as that offset."""
    given = dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
    back = codec.roundtrip(given, dt.datetime)[1]
    assert back == given
    assert back.tzinfo is dt.UTC
