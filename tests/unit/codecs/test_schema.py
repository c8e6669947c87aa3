"""A value fits a stored schema if and only if the type that the schema is of can read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta

from outlast.codecs import JsonCodec
from outlast.codecs.schema import problem_in, schema_of
from outlast.errors import Undecodable


class Colour(Enum):
    RED = "red"


@dataclass
class Item:
    name: Annotated[str, Meta(min_length=2, pattern="^[a-z]+$")]
    count: Annotated[int, Meta(ge=1, lt=10)] = 1


@dataclass
class Order:
    items: list[Item]
    colour: Colour | None = None
    pair: tuple[int, str] | None = None


VALUES: list[tuple[Any, Any, str | None]] = [
    (int, 3, None),
    (int, "3", "it needs a whole number"),
    (int, True, "it needs a whole number"),
    (bool, 1, "it needs true or false"),
    (str | None, None, None),
    (str | None, 7, "it needs text or it needs nothing"),
    (Literal["a", "b"], "c", 'it needs one of "a", "b"'),
    (Colour, "red", None),
    (Colour, "blue", 'it needs one of "red"'),
    (Item, {"name": "ab"}, None),
    (Item, {"count": 1}, "name is missing"),
    (Item, {"name": "a"}, "name needs at least 2 characters"),
    (Item, {"name": "AB"}, "name does not match '^[a-z]+$'"),
    (Item, {"name": "ab", "count": 0}, "count needs at least 1"),
    (Item, {"name": "ab", "count": 10}, "count needs less than 10"),
    (Order, {"items": [{"name": "ab"}, {"name": 3}]}, "items[1].name needs text"),
    (Order, {"items": [], "pair": [1, "x"]}, None),
    (dict[str, int], {"a": 1}, None),
    (dict[str, int], {"a": "b"}, "a needs a whole number"),
    (list[int], {}, "it needs a list"),
    (Annotated[datetime, Meta(tz=True)], "2031-05-06T07:08:09Z", None),
    (Annotated[datetime, Meta(tz=True)], "soon", "it is not a date-time"),
    (UUID, "x", "it is not a uuid"),
    (Decimal, "1.5", None),
]


@pytest.mark.parametrize(("type", "value", "problem"), VALUES)
def test_a_value_and_a_schema(type: Any, value: Any, problem: str | None) -> None:
    """The problem names the place; the type itself agrees."""
    schema = schema_of(type)
    assert schema is not None
    assert problem_in(value, msgspec.json.decode(schema)) == problem
    codec = JsonCodec()
    data = codec.encode(value)
    if problem is None:
        codec.decode(data, type)
    else:
        with pytest.raises(Undecodable):
            codec.decode(data, type)


def test_types_without_a_schema_restrict_nothing() -> None:
    """Any value, and a type that has no form as data: the receiver alone decides."""
    assert schema_of(Any) is None
    assert schema_of(object()) is None


def test_a_model_gives_its_own_schema() -> None:
    """By the names of its fields, which are those that are stored."""
    pydantic = pytest.importorskip("pydantic")
    kind = pydantic.create_model(
        "Approval", approved=(bool, ...), amount=(int, pydantic.Field(gt=0))
    )
    schema = msgspec.json.decode(schema_of(kind) or b"")
    assert problem_in({"approved": True, "amount": 1}, schema) is None
    assert problem_in({"approved": True, "amount": 0}, schema) == "amount needs more than 0"
    assert problem_in({"amount": 1}, schema) == "approved is missing"
