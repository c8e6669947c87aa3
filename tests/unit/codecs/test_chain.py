"""Transforms after a codec: what was done is written down, and only that is undone."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from typing import Any

import msgspec
import pytest

from outlast.codecs import Chain, JsonCodec, Zlib
from outlast.codecs.chain import unwrap
from outlast.errors import InvalidValue, NotSerializable, PayloadTooLarge, Undecodable
from outlast.ports.codec import Codec

codec = JsonCodec()
LONG = {"text": "outlast " * 1000}


@dataclasses.dataclass
class Xor:
    """Stands in for encryption."""

    key: int
    tag: str = "xor"

    def forward(self, data: bytes) -> bytes | None:
        return bytes(byte ^ self.key for byte in data)

    def backward(self, data: bytes) -> bytes:
        return bytes(byte ^ self.key for byte in data)


class Broken:
    tag = "broken"

    def forward(self, data: bytes) -> bytes | None:
        return data

    def backward(self, data: bytes) -> bytes:
        raise RuntimeError("no key")


def forged(tag: str, content: bytes) -> bytes:
    return msgspec.json.encode({f"~{tag}": base64.b64encode(content).decode()})


CHAINS: list[Codec] = [
    Chain(codec),
    codec | Zlib(),
    codec | Zlib(0),
    codec | Zlib(None),
    codec | Xor(7),
    codec | Zlib(0) | Xor(7),
    codec | Xor(7) | Zlib(0),
]


@pytest.mark.proves("I28")
@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("value", [None, 5, "", {}, LONG, [LONG, 1.5]], ids=lambda v: str(v)[:9])
def test_a_chain_is_a_codec(chain: Codec, value: Any) -> None:
    """Values come back, and what is stored is JSON at the end of every chain."""
    data, back = chain.roundtrip(value)
    assert back == value
    assert chain.decode(data) == value
    assert bytes(chain.encode(value)) == bytes(data)
    json.loads(bytes(data))


@pytest.mark.proves("I28")
def test_zlib_leaves_small_and_dense_values_alone() -> None:
    """They are stored as readable JSON, since compression would not make them smaller."""
    chain = codec | Zlib(threshold=100)
    assert bytes(chain.encode("x" * 50)) == b'"%b"' % (b"x" * 50)
    dense = base64.b85encode(bytes((i * i * 7919 + i * 104729) % 251 for i in range(200))).decode()
    assert unwrap(chain.encode(LONG)) is not None
    assert len(bytes(chain.encode(LONG))) < 200
    assert unwrap((codec | Zlib(0)).encode(dense[:40])) is None


def test_a_threshold_of_none_reads_but_does_not_write() -> None:
    """The way to stop compressing: what is there stays readable."""
    stored = (codec | Zlib()).encode(LONG)
    reader = codec | Zlib(None)
    assert reader.decode(stored) == LONG
    assert bytes(reader.encode(LONG)) == bytes(codec.encode(LONG))


def test_one_envelope_lists_what_was_done_in_order() -> None:
    """Base64 is paid for once, however long the chain is."""
    data = (codec | Zlib() | Xor(7)).encode(LONG)
    assert bytes(data).startswith(b'{"~zlib+xor":"')
    short = (codec | Zlib() | Xor(7)).encode(1)
    assert bytes(short).startswith(b'{"~xor":"')


@pytest.mark.proves("S29")
def test_reading_needs_the_transforms_and_not_their_order() -> None:
    """Stored data says what was done; a chain that cannot undo it says so."""
    data = (codec | Zlib() | Xor(7)).encode(LONG)
    assert (codec | Xor(7) | Zlib()).decode(data) == LONG
    with pytest.raises(Undecodable, match=r"'~zlib\+xor', and this codec can undo zlib"):
        (codec | Zlib()).decode(data)
    with pytest.raises(Undecodable, match=r"'~zlib\+xor'"):
        codec.decode(data)
    with pytest.raises(Undecodable, match="can undo nothing"):
        Chain(codec).decode(data)


@pytest.mark.proves("S16", "S28", "S29")
@pytest.mark.parametrize(
    "data",
    [
        forged("zlib", b""),
        forged("zlib", b"garbage"),
        forged("zlib", zlib.compress(b"1")[:-1]),
        forged("zlib", zlib.compress(b"1") + b"x"),
        forged("zlib", zlib.compress(b"{")),
        forged("zlib", zlib.compress(forged("zlib", zlib.compress(b"1")))),
        forged("zlib+zlib", zlib.compress(zlib.compress(b"1"))),
        forged("json+zlib", zlib.compress(b"1")),
        forged("+zlib", zlib.compress(b"1")),
        forged("zlib+", zlib.compress(b"1")),
        forged("ZLIB", zlib.compress(b"1")),
        forged("broken", b"1"),
        b'{"~zlib":5}',
        b'{"~zlib":"*"}',
        b'{"~zlib":"\xff"}',
        b'{"~zlib":"\\u00e9"}',
        b'{"~zlib":null}',
    ],
    ids=lambda data: ascii(data[:30]),
)
def test_forged_or_damaged_envelopes_are_undecodable(data: bytes) -> None:
    """One typed error that names the value, whatever is wrong inside."""
    with pytest.raises(Undecodable, match=r"^result of pay: "):
        (codec | Zlib() | Broken()).decode(data, where="result of pay")


@pytest.mark.proves("S16")
def test_a_bomb_is_not_unfolded() -> None:
    """Decompression stops at the limit, far before the memory is full."""
    chain = codec | Zlib(max_bytes=1000)
    assert chain.decode(forged("zlib", zlib.compress(b'"%b"' % (b"x" * 998)))) == "x" * 998
    with pytest.raises(Undecodable, match="more than the 1,000 bytes"):
        chain.decode(forged("zlib", zlib.compress(b'"%b"' % (b"x" * 999))))
    with pytest.raises(Undecodable, match="more than the 16,777,216 bytes"):
        (codec | Zlib()).decode(forged("zlib", zlib.compress(b" " * 200_000_000)))


@pytest.mark.proves("I28")
def test_zlib_writes_nothing_that_it_would_refuse_to_read() -> None:
    """A value over its limit is left uncompressed."""
    chain = codec | Zlib(max_bytes=1000)
    assert chain.decode(chain.encode("x" * 2000)) == "x" * 2000


@pytest.mark.proves("S3")
def test_refusals_of_the_codec_pass_through() -> None:
    """A transform sees only what the codec has accepted."""
    chain = JsonCodec(max_bytes=10) | Zlib(0)
    with pytest.raises(PayloadTooLarge):
        chain.encode("x" * 20)
    with pytest.raises(NotSerializable):
        chain.roundtrip((1,))


def test_a_transform_that_cannot_undo_itself_is_found_before_anything_is_written() -> None:
    """The value goes all the way there and back, as it will in a replay."""
    with pytest.raises(Undecodable, match="~broken"):
        (codec | Broken()).roundtrip(LONG)


@pytest.mark.parametrize("tag", ["", "json", "fact", "UPPER", "a+b", "~a", 'a"b', "a b", "é"])
def test_a_tag_is_a_plain_word_that_is_not_taken(tag: str) -> None:
    """It is stored for ever, so it is checked at once."""
    with pytest.raises(InvalidValue):
        codec | Xor(1, tag)


def test_two_transforms_cannot_share_a_tag() -> None:
    """Nobody could tell afterwards which of them to undo."""
    with pytest.raises(InvalidValue, match="same tag"):
        codec | Xor(1) | Xor(2)


@pytest.mark.parametrize("options", [{"level": 10}, {"max_bytes": 0}, {"threshold": -1}], ids=str)
def test_settings_of_zlib_are_checked(options: dict[str, Any]) -> None:
    """At once, not when the first large value comes."""
    with pytest.raises(InvalidValue):
        Zlib(**options)


def test_a_codec_of_ones_own_needs_two_methods() -> None:
    """`roundtrip` has a default that uses them."""

    class Upper(Codec):
        def encode(self, value: object, type: Any = Any, *, where: str = "value") -> msgspec.Raw:
            return msgspec.Raw(msgspec.json.encode(str(value).upper()))

        def decode(
            self, data: msgspec.Raw | bytes, type: Any = Any, *, where: str = "value"
        ) -> Any:
            return msgspec.json.decode(data, type=str)

    assert Upper().roundtrip("a") == (msgspec.Raw(b'"A"'), "A")
    assert Chain(Upper(), Zlib(0)).roundtrip("a" * 99)[1] == "A" * 99
