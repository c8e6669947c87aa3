"""Classes of pydantic and attrs are data too, alone and inside other types."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import math
import subprocess
import sys
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from outlast.codecs import JsonCodec
from outlast.errors import NotSerializable, PayloadError, Undecodable

codec = JsonCodec()


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal = Decimal("1.10")
    tags: set[str] = set()
    pair: tuple[int, int] = (1, 2)
    at: dt.datetime | None = None
    note: Any = None
    weight: float | None = None


class Order(pydantic.BaseModel):
    lines: list[Line]
    parent: Order | None = None


class Derived(Line):
    extra: int = 0


class Aliased(pydantic.BaseModel):
    name: str = pydantic.Field(validation_alias="in-name", serialization_alias="out-name")


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


class Private(pydantic.BaseModel):
    a: int
    _state: int = pydantic.PrivateAttr(default=0)


class Excluded(pydantic.BaseModel):
    a: int = pydantic.Field(default=0, exclude=True)


class Ordered(pydantic.BaseModel):
    counts: collections.OrderedDict[str, int]


class Stubborn(pydantic.BaseModel):
    @classmethod
    def model_validate_json(cls, *_: Any, **__: Any) -> Stubborn:
        raise ValueError("not today\nand not tomorrow")


class Secret(pydantic.BaseModel):
    key: pydantic.SecretStr


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Computed(pydantic.BaseModel):
    a: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.a * 2


@dataclasses.dataclass
class Holder:
    line: Line
    lines: dict[str, Line] = dataclasses.field(default_factory=dict)
    maybe: Line | None = None


class Carrier(msgspec.Struct):
    line: Line


@pydantic.dataclasses.dataclass
class Checked:
    a: int
    b: list[int] = pydantic.Field(default_factory=list)


@attrs.define
class Point:
    x: int
    y: tuple[int, ...] = ()


@attrs.frozen
class Path:
    points: list[Point]


@attrs.define
class Underscored:
    _hidden: int = 0


def aliased(name: str) -> Aliased:
    return Aliased.model_validate({"in-name": name})


LINE = Line(
    sku="s",
    price=Decimal("2.50"),
    tags={"x"},
    at=dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
    note={"a": [1, None]},
)

EXACT: list[tuple[Any, Any]] = [
    (LINE, Line),
    (Order(lines=[LINE, Line(sku="t")], parent=Order(lines=[])), Order),
    ([LINE], list[Line]),
    ({"a": (LINE, 1)}, dict[str, tuple[Line, int]]),
    (None, Line | None),
    (LINE, Line | None),
    (Holder(LINE, {"a": LINE}, LINE), Holder),
    (Carrier(LINE), Carrier),
    (aliased("x"), Aliased),
    ([aliased("x")], list[Aliased]),
    (Open.model_validate({"x": {"y": [1]}}), Open),
    (Private(a=1), Private),
    (Numbers([1, 2]), Numbers),
    (Ordered(counts=collections.OrderedDict(b=1, a=2)), Ordered),
    (Computed(a=2), Computed),
    (Checked(1, [2]), Checked),
    (Point(1, (2, 3)), Point),
    (Path([Point(1)]), Path),
    ({"a": [Path([Point(1)])]}, dict[str, list[Path]]),
]


def kind(value: object) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


@pytest.mark.proves("I28")
@pytest.mark.parametrize("value, annotation", EXACT, ids=kind)
def test_models_come_back_exactly(value: Any, annotation: Any) -> None:
    """Fields, aliases, extras and nested models, wherever the model stands."""
    data, back = codec.roundtrip(value, annotation)
    assert back == codec.decode(data, annotation) == value
    assert type(back) is type(value)


def with_private(state: int) -> Private:
    private = Private(a=1)
    private._state = state
    return private


REFUSED: list[tuple[Any, Any, str]] = [
    (LINE, Any, "annotate it as line"),
    ({"a": LINE}, dict[str, Any], "value → a: "),
    (Line(sku="s", note=(1,)), Line, "value → note: a value of type tuple"),
    (Order(lines=[LINE, Line(sku="s", note={"b": b"x"})]), Order, "value → lines[1].note.b: "),
    (Line(sku="s", note=math.nan), Line, "value → note: nan"),
    (Line(sku="s", weight=math.inf), Line, "value → weight: inf"),
    (Holder(Line(sku="s", note={1: 2})), Holder, "value → line.note: the key 1"),
    (Line(sku="s", note=object()), Line, "value → note: a value of type object"),
    (Line(sku="\ud800"), Line, "value → sku: the text contains a lone surrogate"),
    (Derived(sku="s"), Line, "derived would come back as a value of type line"),
    (with_private(5), Private, "value → _state: "),
    (Excluded(a=5), Excluded, "value → a: "),
    (Secret(key=pydantic.SecretStr("x")), Secret, "value → key: "),
    (LINE, Line | int, "tag=true"),
    (Stubborn(), Stubborn, "cannot be decoded again: ValueError: not today"),
    ({"sku": "s"}, Line, "dict would come back as a value of type line"),
    (Underscored(5), Underscored, "value → _hidden: "),
]


@pytest.mark.proves("I28", "S3")
@pytest.mark.parametrize("value, annotation, advice", REFUSED, ids=kind)
def test_what_a_model_does_not_restore_is_refused(value: Any, annotation: Any, advice: str) -> None:
    """Its own serializer is asked, and then checked like any other."""
    with pytest.raises(NotSerializable) as refused:
        codec.encode(value, annotation)
    assert advice.lower() in str(refused.value).lower()


@pytest.mark.proves("S16")
def test_a_model_that_holds_itself_is_refused() -> None:
    """Pydantic notices the circle; it must not come out as an error of pydantic's."""
    order = Order(lines=[])
    order.parent = order
    with pytest.raises(PayloadError):
        codec.encode(order, Order)


@pytest.mark.proves("S28")
@pytest.mark.parametrize(
    "data",
    [
        b'{"lines":[{"sku":7}]}',
        b'{"lines":[{"sku":"s","weight":NaN}]}',
        b"{}",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("annotation", [Order, Order | None, list[Order]], ids=str)
def test_stored_data_that_is_no_model_is_undecodable(data: bytes, annotation: Any) -> None:
    """Pydantic's errors stay inside; the place is told, and the input is not quoted."""
    if data == b"[]" and annotation == list[Order]:
        data = b"[[]]"
    if data == b"null" and annotation == Order | None:
        data = b"0"
    with pytest.raises(Undecodable, match=r"^the order") as refused:
        codec.decode(data, annotation, where="the order")
    assert "input_value" not in str(refused.value)


@pytest.mark.proves("S28")
def test_the_field_that_does_not_fit_is_named() -> None:
    """One line, with the path that pydantic gives."""
    with pytest.raises(Undecodable, match=r"field lines\.0\.sku"):
        codec.decode(b'{"lines":[{"sku":7}]}', Order)


WITHOUT = """
import sys
from dataclasses import dataclass
from outlast.codecs import JsonCodec
codec = JsonCodec()
@dataclass
class A:
    a: int
codec.roundtrip(A(1), A)
try:
    codec.encode(object())
except ValueError:
    pass
print(sorted({"pydantic", "attr", "attrs"} & set(sys.modules)))
"""


def test_neither_library_is_imported_by_the_codec() -> None:
    """They are recognised where the user's program has imported them, and only there."""
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
