"""Exactly or not at all, for whatever hypothesis comes up with."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.codecs import JsonCodec, Zlib
from outlast.errors import NotSerializable, PayloadTooDeep, Undecodable

T = TypeVar("T")
codec = JsonCodec()
chains = st.sampled_from([codec, codec | Zlib(), codec | Zlib(0)])


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass(frozen=True)
class Box(Generic[T]):
    content: T
    label: str = ""


# -- values without annotation --------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
tilde_keys = st.sampled_from(["~", "~json", "~fact", "~zlib", "~~", "a"]) | texts
plain = st.none() | st.booleans() | st.integers() | finite | texts
jsons = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(tilde_keys, inner, max_size=4),
    max_leaves=20,
)

odd = st.one_of(
    st.floats(),
    st.text(),
    st.text(st.characters(categories=["Cs"]), max_size=2),
    st.binary(max_size=4),
    st.decimals().filter(lambda number: not number.is_snan()),  # it cannot even be a key
    st.uuids(),
    st.datetimes(),
    st.sampled_from([*Colour, *Level, Pair(1, "a"), Box(1), object(), print, 1j, range(2)]),
)
anything = st.recursive(
    plain | odd,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(plain | odd, inner, max_size=3),
        st.dictionaries(tilde_keys, inner, max_size=1),
    ),
    max_leaves=12,
)


@pytest.mark.proves("I28", "S2")
@given(value=jsons, chain=chains)
def test_json_native_values_always_come_back(value: Any, chain: Any) -> None:
    """Whatever is JSON already is accepted, and nothing about it changes."""
    data, back = chain.roundtrip(value)
    assert identical(back, value)
    assert identical(chain.decode(data), value)
    assert identical(chain.decode(data, object), value)
    json.loads(bytes(data))


@pytest.mark.proves("I28", "S2")
@given(value=st.recursive(plain, lambda inner: st.dictionaries(tilde_keys, inner, max_size=1)))
def test_towers_of_lookalike_envelopes_come_back(value: Any) -> None:
    """However many of our own tags a value piles up."""
    for chain in (codec, codec | Zlib(0)):
        data, back = chain.roundtrip(value)
        assert identical(back, value)
        assert identical(chain.decode(data), value)
        assert identical(chain.decode(b"\n" + bytes(data) + b" "), value)


@pytest.mark.proves("I28", "S3")
@given(value=anything)
def test_any_python_value_comes_back_exactly_or_is_refused(value: Any) -> None:
    """There is no third way, and no other error."""
    try:
        data, back = codec.roundtrip(value)
    except (NotSerializable, PayloadTooDeep):
        assert not is_json(value)
    else:
        assert identical(back, value)
        assert identical(codec.decode(data), value)


# -- values with annotation -----------------------------------------------------------------------

Typed = tuple[Any, st.SearchStrategy[Any]]
"""An annotation, and a strategy for its values."""

offsets = st.integers(-23 * 60, 23 * 60).map(lambda m: dt.timezone(dt.timedelta(minutes=m)))
LEAVES: list[Typed] = [
    (int, st.integers()),
    (bool, st.booleans()),
    (float, finite),
    (str, texts),
    (bytes, st.binary(max_size=8)),
    (None, st.none()),
    (dt.datetime, st.datetimes(timezones=st.none() | offsets).map(lambda t: t.replace(fold=0))),
    (dt.date, st.dates()),
    (dt.time, st.times(timezones=st.none() | offsets).map(lambda t: t.replace(fold=0))),
    (dt.timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (uuid.UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Pair, st.builds(Pair, st.integers(), texts)),
    (Any, jsons),
]
KEYS: list[Typed] = [LEAVES[0], LEAVES[3], LEAVES[11], LEAVES[12], LEAVES[13], LEAVES[7]]


def of(generic: Any, *arguments: Any) -> Any:
    """`generic[arguments]`, for arguments that are known only here."""
    return generic[arguments]


BUILDERS: list[Callable[[Typed, Typed], Typed]] = [
    lambda a, _: (of(list, a[0]), st.lists(a[1], max_size=3)),
    lambda a, _: (of(tuple, a[0], ...), st.lists(a[1], max_size=3).map(tuple)),
    lambda a, b: (of(tuple, a[0], b[0]), st.tuples(a[1], b[1])),
    lambda a, _: (a[0] | None, a[1] | st.none()),
    lambda a, _: (of(Box, a[0]), st.builds(Box, a[1], texts)),
    lambda a, _: (of(dict, str, a[0]), st.dictionaries(tilde_keys, a[1], max_size=3)),
]


@st.composite
def typed(draw: st.DrawFn) -> Typed:
    """An annotation of some depth, with a strategy for its values."""
    current = draw(st.sampled_from(LEAVES))
    for _ in range(draw(st.integers(0, 3))):
        if current[0] in (None, Any):  # `None | None` is no type, and Any swallows the rest
            current = (of(list, current[0]), st.lists(current[1], max_size=2))
        current = draw(st.sampled_from(BUILDERS))(current, draw(st.sampled_from(LEAVES)))
    if draw(st.booleans()):
        key = draw(st.sampled_from(KEYS))
        if draw(st.booleans()):
            return of(set, key[0]), st.sets(key[1], max_size=4)
        return of(dict, key[0], current[0]), st.dictionaries(key[1], current[1], max_size=3)
    return current


@pytest.mark.proves("I28")
@given(data=st.data(), chain=chains)
def test_annotated_values_always_come_back(data: st.DataObject, chain: Any) -> None:
    """Every value of an annotation that outlast supports is accepted, and restored in its types."""
    annotation, values = data.draw(typed())
    value = data.draw(values)
    text, back = chain.roundtrip(value, annotation)
    assert identical(back, value)
    assert identical(chain.decode(text, annotation), value)
    json.loads(bytes(text))


@pytest.mark.proves("I28")
@given(data=st.data())
def test_a_value_under_a_wrong_annotation_comes_back_exactly_or_is_refused(
    data: st.DataObject,
) -> None:
    """The only liberty is an int for the float that it equals."""
    annotation, _ = data.draw(typed())
    value = data.draw(data.draw(typed())[1] | anything)
    try:
        text, back = codec.roundtrip(value, annotation)
    except (NotSerializable, PayloadTooDeep):
        return
    assert identical(back, value, ints_as_floats=True)
    assert identical(codec.decode(text, annotation), back)


# -- stored bytes ---------------------------------------------------------------------------------

fragments = st.sampled_from(
    [
        *b'{ } [ ] , : " \\ ~ {"~json": {"~zlib":" null 1 - e9 "a" eJyrVg== \\ud800 \\u007e'.split(),
        b"\xff",
        b"\0",
        b" ",
    ]
)
texts_of_json = jsons.map(msgspec.json.encode)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Valid JSON with something cut out of it and something put in."""
    text = draw(texts_of_json)
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, len(text)))
    return text[:start] + draw(fragments | st.binary(max_size=3)) + text[end:]


hostile = st.binary() | st.lists(fragments).map(b"".join) | damaged()


@pytest.mark.proves("S1", "S16", "S28", "S29")
@given(stored=hostile, data=st.data(), chain=chains)
def test_hostile_bytes_give_a_value_or_undecodable(
    stored: bytes, data: st.DataObject, chain: Any
) -> None:
    """No other error escapes, whatever is stored and whatever is expected."""
    annotation, _ = data.draw(typed())
    for expected in (Any, annotation):
        try:
            value = chain.decode(stored, expected)
        except Undecodable:
            continue
        assert expected is not Any or is_json(value)


def is_json(value: Any) -> bool:
    """Whether the standard library agrees that this is JSON, with nothing bent."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return identical(json.loads(text), value)


def identical(one: Any, other: Any, *, ints_as_floats: bool = False) -> bool:
    """Same types and values all the way down, told slowly and by other means than the codec's."""
    if ints_as_floats and type(one) is float and type(other) is int:
        return one == other
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        one, other = vars(one), vars(other)
    if isinstance(one, dict):
        one, other = list(one.items()), list(other.items())
    elif isinstance(one, set):
        one, other = sorted(one, key=repr), sorted(other, key=repr)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(
            identical(a, b, ints_as_floats=ints_as_floats) for a, b in zip(one, other, strict=True)
        )
    return repr(one) == repr(other) or (isinstance(one, dt.datetime | dt.time) and one == other)
