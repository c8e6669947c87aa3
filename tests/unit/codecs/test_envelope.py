"""Envelopes are told apart from whatever a user stores, at the outermost level only."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outlast.codecs import JsonCodec, Zlib
from outlast.codecs.chain import escape, unwrap, wrap
from outlast.errors import Undecodable

codec = JsonCodec()


def test_wrap_and_unwrap() -> None:
    """A tag and JSON text go in and come out."""
    data = wrap("fact", b'"9f86"')
    assert bytes(data) == b'{"~fact":"9f86"}'
    assert unwrap(data) == ("fact", msgspec.Raw(b'"9f86"'))
    assert unwrap(bytes(data)) == ("fact", msgspec.Raw(b'"9f86"'))


NOT_ENVELOPES = [
    b"{}",
    b"[]",
    b"1",
    b'"~a"',
    b'["~a"]',
    b'{"a":{"~fact":1}}',
    b'[{"~fact":1}]',
    b'{"a~":1}',
    b'{"~a":1,"~b":2}',
    b'{"~a":1,"b":2}',
    b'{"b":2,"~a":1}',
    b'{"\\na":1}',
    b"",
    b'{"~',
    b'{"~a":1',
    b'{"~a":1}x',
    b'{"~\xff":1}',
    b'{"~a":' + b"[" * 100_000,
]


@pytest.mark.proves("S2")
@pytest.mark.parametrize("data", NOT_ENVELOPES, ids=lambda data: ascii(data[:20]))
def test_anything_else_is_no_envelope(data: bytes) -> None:
    """More keys, deeper levels, other values, and text that is no JSON."""
    assert unwrap(data) is None
    assert bytes(escape(data)) == data


SPELLINGS = [
    b'{"~zlib":1}',
    b' {"~zlib" : 1 } ',
    b'\n\t{\r\n "~zlib":\n1}',
    b'{"\\u007ezlib":1}',
    b'{ "\\u007Ezl\\u0069b" : 1}',
]


@pytest.mark.proves("S2")
@pytest.mark.parametrize("data", SPELLINGS)
def test_every_spelling_of_an_envelope_is_seen(data: bytes) -> None:
    """JSON written by others may hold whitespace and escapes; it means the same."""
    assert unwrap(data) == ("zlib", msgspec.Raw(b"1"))
    tag, inner = unwrap(escape(data)) or ("", b"")
    assert tag == "json"
    assert msgspec.json.decode(inner) == {"~zlib": 1}


LOOKALIKES: list[Any] = [
    {"~json": 1},
    {"~fact": "9f86"},
    {"~zlib": "eJw="},
    {"~": None},
    {"~~": {}},
    {"~json": {"~json": {"~fact": 1}}},
    {"~zlib+encrypt": "x"},
    {"~json": {"~zlib": "x"}},
]


@pytest.mark.proves("S2", "I28")
@pytest.mark.parametrize("value", LOOKALIKES, ids=str)
@pytest.mark.parametrize("chain", [codec, codec | Zlib(), codec | Zlib(0)], ids=str)
@pytest.mark.parametrize("annotation", [Any, dict, dict[str, Any]], ids=str)
def test_user_data_that_looks_like_ours_survives(value: Any, chain: Any, annotation: Any) -> None:
    """It is escaped when written, and comes back as it was."""
    data, back = chain.roundtrip(value, annotation)
    assert back == value
    assert chain.decode(data, annotation) == value
    assert chain.decode(b" \n" + bytes(data) + b"\t", annotation) == value
    assert (unwrap(data) or [""])[0] in ("json", "zlib")


@pytest.mark.proves("S2")
def test_only_the_outermost_level_is_interpreted() -> None:
    """An envelope inside a value is a dict like any other."""
    value = {"a": {"~fact": "x"}, "b": [{"~json": 1}]}
    data = codec.encode(value)
    assert bytes(data) == msgspec.json.encode(value)
    assert codec.decode(data) == value
    assert codec.decode(b'{"~json":{"~json":1}}') == {"~json": 1}


@pytest.mark.proves("S2")
def test_a_struct_whose_field_is_named_like_a_tag_is_escaped_too() -> None:
    """What counts is the text, not the type that it was made from."""

    class Sly(msgspec.Struct):
        fact: str = msgspec.field(name="~fact")

    data = codec.encode(Sly("x"), Sly)
    assert bytes(data) == b'{"~json":{"~fact":"x"}}'
    assert codec.decode(data, Sly) == Sly("x")


@pytest.mark.proves("S29")
@pytest.mark.parametrize("tag", ["fact", "zlib", "pickle", "json2", "", "~", "JSON"])
def test_an_unknown_tag_is_named(tag: str) -> None:
    """A form from another version or a forged one is an error, never a guess."""
    with pytest.raises(Undecodable) as refused:
        codec.decode(msgspec.json.encode({f"~{tag}": "x"}), where="result of pay")
    assert f"result of pay: stored as '~{tag}'" in str(refused.value)
