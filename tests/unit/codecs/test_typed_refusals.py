"""What does not fit its annotation, or whose annotation cannot work, is refused with the reason."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import zoneinfo
from collections.abc import Callable, Generator, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest

from outlast.codecs import JsonCodec
from outlast.errors import NotSerializable, Undecodable
from tests.unit.codecs.test_typed import ITEM, Address, Box, Item, Number, Order, Point, Text, kind

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers

codec = JsonCodec()


class Ratio(enum.Enum):
    HALF = 0.5


@dataclasses.dataclass(frozen=True)
class SubItem(Item):
    extra: int = 0


@dataclasses.dataclass
class Forgetful:
    """Does not restore what it wrote."""

    a: int

    def __post_init__(self) -> None:
        self.a += 1


@dataclasses.dataclass
class Picky:
    a: int

    def __post_init__(self) -> None:
        if self.a > 1:
            raise KeyError("too much")


class Plain:
    pass


@dataclasses.dataclass
class Unresolved:
    a: OnlyForTypeCheckers


REFUSED: list[tuple[Any, Any, str]] = [
    # another type than the one annotated
    ("5", int, "expected `int`, got `str`"),
    (1.0, int, "expected `int`, got `float`"),
    (True, int, "expected `int`, got `bool`"),
    (1, bool, "expected `bool`, got `int`"),
    (Number.ONE, int, "Number would come back as a value of type int"),
    (1, Number, "int would come back as a value of type Number"),
    ("a", Text, "would come back as a value of type Text"),
    (Text.A, Literal["a"], "would come back"),
    ("2026-01-01", dt.date, "would come back as a value of type date"),
    (5, Decimal, "would come back as a value of type Decimal"),
    ((1, 2), list[int], "tuple would come back as a value of type list"),
    ([1, 2], tuple[int, ...], "list would come back as a value of type tuple"),
    ((1, 2), Sequence[int], "tuple would come back as a value of type list"),
    ({"a": 1}, dict[Text, int], "keys would come back with another type"),
    ({"street": "x", "zip": 1}, Address, "the key 'zip' is not in the annotation"),
    ({"sku": "s", "price": "1"}, Item, "dict would come back as a value of type"),
    (SubItem("s", Decimal(1)), Item, "SubItem would come back as a value of type"),
    ((1, 2.0), Point, "would come back as a value of type Point"),
    (Point(1, 2), tuple[int, int], "Point would come back as a value of type tuple"),
    (5, Annotated[int, msgspec.Meta(gt=9)], "expected `int` >= 10"),
    (None, int, "got `null`"),
    (1, None, "expected `null`"),
    # not exact
    (2**53 + 1, float, "not exactly a float"),
    (10**400, float, "out of range"),
    (math.nan, float, "nan is not a number"),
    (math.nan, float | None, "nan is not a number"),
    ([1.0, math.inf], list[float | None], "value → [1]: inf is not a number"),
    ({"a": {"b": -math.inf}}, dict[str, dict[str, float]], "value → a.b: -inf"),
    (Item("s", Decimal(1), weight=math.nan), Item, "value → weight: nan"),
    (Decimal("NaN"), Decimal, "not a number"),
    (Decimal("sNaN"), Decimal, "not a number"),
    (Decimal("-Infinity"), Decimal, "not a number"),
    (dt.datetime(2026, 1, 1, fold=1), dt.datetime, "fold=1"),  # noqa: DTZ001
    (dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), dt.datetime, "Berlin"),
    (dt.time(1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), dt.time, "Berlin"),
    (
        dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=30))),
        dt.datetime,
        "whole minutes",
    ),
    ("\ud800", str, "lone surrogate"),
    (Item("\udc80", Decimal(1)), Item, "value → sku: the text contains a lone surrogate"),
    ({1, b"x"}, set, "members of the set"),
    ({(1, 2)}, set, "cannot be decoded again"),
    # an Any inside
    (Item("s", Decimal(1), note=(1,)), Item, "value → note: a value of type tuple"),
    ([ITEM, Item("s", Decimal(1), note={"a": b""})], list[Item], "value → [1].note.a: "),
    (Box((1,)), Box, "value → content: a value of type tuple"),
    # classes that do not restore themselves
    (Forgetful(1), Forgetful, "value → a: "),
    # annotations that can never work
    (ITEM, Item | Order, "tag=True"),
    ("x", str | dt.datetime, "tag=True"),
    (b"x", str | bytes, "JSON does not distinguish them"),
    (ITEM, Annotated[Item | Order, []], "tag=True"),
    (5, "int", "get_type_hints"),
    (5, Plain, "Plain is not a type that can be stored"),
    (Plain(), Plain, "Plain has no JSON form"),
    (5, Callable[[], None], "Callable"),
    (print, Callable[[], None], "never code"),
    ([1], Iterable[int], "Iterable[int] is not a type that can be stored"),
    (5, Generator[int], "Generator"),
    (Ratio.HALF, Ratio, "store the member's name"),
    (1j, complex, "complex"),
    (5, 5, "not supported"),
    (5, Unresolved, "Import it where the class is defined"),
    (5, list[Unresolved], "'OnlyForTypeCheckers' is not defined"),
]


@pytest.mark.proves("I28", "S3")
@pytest.mark.parametrize("value, annotation, advice", REFUSED, ids=kind)
def test_what_would_not_come_back_the_same_is_refused(
    value: Any, annotation: Any, advice: str
) -> None:
    """The error comes before anything is written, and says what is wrong."""
    with pytest.raises(NotSerializable) as refused:
        codec.roundtrip(value, annotation)
    assert advice in str(refused.value)


@pytest.mark.proves("I28", "S28")
def test_errors_of_a_users_class_are_told_apart_by_direction() -> None:
    """When it is encoded the call is wrong; when it is decoded the stored data is."""
    picky = Picky(0)
    picky.a = 2
    with pytest.raises(NotSerializable, match="cannot be decoded again: KeyError"):
        codec.encode(picky, Picky)
    with pytest.raises(Undecodable, match="order: cannot be decoded: KeyError"):
        codec.decode(b'{"a":2}', Picky, where="order")


@pytest.mark.proves("I28")
def test_an_impossible_annotation_is_the_callers_fault_when_decoding_too() -> None:
    """The stored bytes are not to blame."""
    with pytest.raises(NotSerializable, match="tag=True"):
        codec.decode(b"{}", Item | Order)


@pytest.mark.proves("I28")
def test_running_out_of_memory_is_nobodys_bad_data() -> None:
    """It passes through, in both directions."""

    @dataclasses.dataclass
    class Hungry:
        a: int

        def __post_init__(self) -> None:
            if self.a:
                raise MemoryError

    hungry = Hungry(0)
    hungry.a = 1
    with pytest.raises(MemoryError):
        codec.encode(hungry, Hungry)
    with pytest.raises(MemoryError):
        codec.decode(b'{"a":1}', Hungry)
