"""Values that are sent without a declared type: common kinds of Python arrive as they were, objects as data."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import uuid
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.codecs import JsonCodec
from outlast.codecs.chain import Chain, Zlib
from outlast.codecs.roundtrip import same
from outlast.codecs.untyped import TAGS, without_types
from outlast.errors import (
    InvalidValue,
    NotSerializable,
    PayloadTooDeep,
    PayloadTooLarge,
    Undecodable,
)

codec = JsonCodec()
packed = codec | Zlib(0)


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Price:
    amount: Decimal


class Order(msgspec.Struct):
    id: uuid.UUID


class Model(pydantic.BaseModel):
    at: dt.date


KINDS: list[Any] = [
    Decimal("9.990"),
    dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2030, 1, 1),  # noqa: DTZ001 - naive ones are values too
    dt.date(2030, 1, 1),
    dt.time(12, 30),
    dt.timedelta(days=1, microseconds=3),
    uuid.UUID(int=7),
    b"\x00\xff",
    bytearray(b"x"),
    (1, "a", ()),
    {1, 2},
    frozenset({uuid.UUID(int=1)}),
    {1: "a"},
    {uuid.UUID(int=1): Decimal(1), uuid.UUID(int=2): Decimal(2)},
    {"items": [{"price": Decimal("1.5"), "tags": {"a"}}], "at": (dt.date(2030, 1, 1),)},
]


@pytest.mark.parametrize("value", KINDS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("by", [codec, packed], ids=["json", "zlib"])
def test_common_kinds_arrive_as_they_were(by: JsonCodec | Chain, value: Any) -> None:
    """Without a type at either end, compressed or not."""
    assert same(value, by.decode(by.encode_untyped(value)), 64)


keys = st.text(max_size=3) | st.sampled_from(["~typed", "~json", "value", "types", "~zlib"])
plain = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "~typed", "1.5"])
kinds = (
    st.decimals(allow_nan=False, allow_infinity=False, places=2)
    | st.uuids()
    | st.dates()
    | st.binary(max_size=3)
    | st.datetimes(timezones=st.just(dt.UTC)).map(lambda moment: moment.replace(fold=0))
)
values = st.recursive(
    plain | kinds | st.frozensets(kinds | plain, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.proves("S2")
@given(values)
def test_any_mixture_arrives_as_it_was(value: Any) -> None:
    """Also one that looks like an envelope of ours: no marker inside user data is ever looked at."""
    assert same(value, codec.decode(codec.encode_untyped(value)), 64)
    assert same(value, packed.decode(packed.encode_untyped(value)), 64)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Price(Decimal("1.5")), {"amount": "1.5"}),
        (Order(uuid.UUID(int=7)), {"id": str(uuid.UUID(int=7))}),
        (Model(at=dt.date(2030, 1, 1)), {"at": "2030-01-01"}),
        (Point(1, 2), [1, 2]),
        (Colour.RED, "red"),
    ],
    ids=["dataclass", "struct", "pydantic", "named tuple", "enum"],
)
def test_objects_travel_as_data(value: Any, data: Any) -> None:
    """The receiver's type restores them, alone or in a list beside other kinds; else they are plain."""
    alone = codec.encode_untyped(value)
    assert codec.decode(alone) == data
    assert codec.decode(alone, type(value)) == value
    listed = codec.encode_untyped([value, value])
    assert codec.decode(listed) == [data, data]
    assert codec.decode(listed, list[type(value)]) == [value, value]  # type: ignore[misc]
    mixed = codec.encode_untyped((value, Decimal(1)))
    assert codec.decode(mixed) == (data, Decimal(1))
    assert codec.decode(mixed, tuple[type(value), Decimal]) == (value, Decimal(1))  # type: ignore[misc]


def test_the_receiver_chooses() -> None:
    """A declared type wins over the table; where it declares nothing, the table is used."""
    sent = codec.encode_untyped({"price": Decimal("1.5"), "tags": {"a"}})
    assert codec.decode(sent, dict[str, Any]) == {"price": Decimal("1.5"), "tags": {"a"}}
    assert codec.decode(sent, dict) == {"price": Decimal("1.5"), "tags": {"a"}}
    assert codec.decode(codec.encode_untyped({"a": Decimal(1)}), dict[str, str]) == {"a": "1"}
    assert codec.decode(codec.encode_untyped((1, 2)), list[int]) == [1, 2]
    with pytest.raises(Undecodable, match="signal"):
        codec.decode(sent, dict[str, int], where="signal")


@pytest.mark.parametrize(
    "value",
    [math.nan, [Decimal(1), math.inf], Decimal("NaN"), {1: "a", "b": 2}, object(), {"a": [print]}],
    ids=["nan", "inf inside", "decimal nan", "mixed keys", "object", "function inside"],
)
def test_what_cannot_come_back_is_refused(value: Any) -> None:
    """Nothing is converted in silence."""
    with pytest.raises(NotSerializable, match=r"signal"):
        codec.encode_untyped(value, where="signal")


def test_a_wrong_object_is_refused() -> None:
    """An object whose fields are not what its class declares, wherever it stands in the value."""
    wrong = Price("much")  # type: ignore[arg-type]
    for value in (wrong, [wrong], (wrong, Decimal(1))):
        with pytest.raises(NotSerializable):
            codec.encode_untyped(value)


def test_the_limits_hold() -> None:
    """Size and depth, as for values with a type."""
    endless: list[Any] = [Decimal(1)]
    endless.append(endless)
    with pytest.raises(PayloadTooDeep):
        codec.encode_untyped(endless)
    with pytest.raises(PayloadTooLarge):
        JsonCodec(max_bytes=9).encode_untyped(Decimal("1.000000000000"))


@pytest.mark.proves("S2")
@pytest.mark.parametrize(
    "types",
    [
        '[["os.system"]]',
        '[["decimal","a"]]',
        '[["set"]]',
        "[[]]",
        "[[1]]",
        "7",
        '[["decimal",0,0,0]]',
    ],
)
def test_a_forged_table_builds_nothing_else(types: str) -> None:
    """A tag that is not in the closed list, or a path that leads nowhere, is damage."""
    with pytest.raises(Undecodable):
        codec.decode(b'{"~typed":{"value":[[1]],"types":%b}}' % types.encode())


def test_tags_are_a_promise() -> None:
    """About stored data: none is ever renamed."""
    assert sorted(TAGS) == [
        *("bytearray", "bytes", "date", "date-keys", "datetime", "datetime-keys", "decimal"),
        *("decimal-keys", "frozenset", "int-keys", "set", "time", "timedelta", "tuple", "uuid"),
        "uuid-keys",
    ]
    with pytest.raises(InvalidValue, match="typed"):
        Chain(codec, type("T", (Zlib,), {"tag": "typed"})())


def test_equal_sets_are_written_alike() -> None:
    """Whatever their order in memory is."""
    one, other = codec.encode_untyped({"b", "a", "c"}), codec.encode_untyped({"c", "a", "b"})
    assert bytes(one) == bytes(other)
    assert bytes(without_types(one)) == b'["a","b","c"]'
    assert bytes(without_types(msgspec.Raw(b'{"~typed":1}'))) == b'{"~typed":1}'
