"""Chain: a codec followed by transforms, as one codec. Zlib: the transform that compresses.

``JsonCodec() | Zlib() | Encrypt(key)``: the transforms pass bytes to each other, and an *envelope* carries
the result as base64. An envelope is a JSON object with exactly one key, which starts with ``~``::

    {"~zlib": "eJyr…"}            compressed
    {"~zlib+encrypt": "gAAA…"}    compressed, then encrypted
    {"~fact": "9f86d081…"}        stored elsewhere, under this hash
    {"~typed": {"value": …}}      without a declared type, with the places of its types (`untyped`)
    {"~json": {"~zlib": 1}}       a user's value that has the form of an envelope
    {"order": 7}                  no envelope: no transform applied

The tag lists the transforms in order, so that decoding does not depend on the settings at the time of
writing. Decoding undoes only transforms that are in the chain. An unknown tag is an error, and so is a
repeated one, because a forged tag could otherwise make a small value expensive to decode.

Only the outermost object is interpreted; everything deeper is data. `escape` puts a user's value that
looks like an envelope into a ``~json`` envelope, so stored data cannot select a transform. (Serializers
that interpret their marker at any depth were exploited: CVE-2025-68664, CVE-2025-64439.)

In this module tags are written without the ``~``.
"""

from __future__ import annotations

import base64
import re
import zlib
from typing import Any

import msgspec

from outlast.errors import InvalidValue, Undecodable
from outlast.ports.codec import Codec, Transform

_TAG = re.compile(r"[a-z0-9-]+")

JSON = "json"
"""The tag of a user's value that looks like an envelope."""

TYPED = "typed"
"""The tag of a value without a declared type, with the places of its types."""

FACT = "fact"
"""The tag of a value stored once by its hash. The engine resolves it; codecs never see it."""


class Chain(Codec):
    """`codec`, and then `transforms` from left to right."""

    def __init__(self, codec: Codec, *transforms: Transform) -> None:
        self.codec = codec
        self.transforms = transforms
        self._by_tag = {transform.tag: transform for transform in transforms}
        if len(self._by_tag) != len(transforms):
            raise InvalidValue(
                "two transforms of a chain have the same tag: give each transform a tag of its own"
            )
        for tag in self._by_tag:
            if not _TAG.fullmatch(tag) or tag in (JSON, FACT, TYPED):
                raise InvalidValue(
                    f"{tag!r} cannot be a transform's tag: use lower-case letters, digits and "
                    "hyphens, and none of 'json', 'fact' and 'typed'"
                )

    def __repr__(self) -> str:
        return " | ".join(map(repr, (self.codec, *self.transforms)))

    def __or__(self, transform: Transform) -> Chain:
        return Chain(self.codec, *self.transforms, transform)

    def encode(self, value: object, type: Any = Any, *, where: str = "value") -> msgspec.Raw:
        return self._forward(self.codec.encode(value, type, where=where))

    def encode_untyped(self, value: object, *, where: str = "value") -> msgspec.Raw:
        return self._forward(self.codec.encode_untyped(value, where=where))

    def schema(self, type: Any) -> msgspec.Raw | None:
        return self.codec.schema(type)

    def decode(self, data: msgspec.Raw | bytes, type: Any = Any, *, where: str = "value") -> Any:
        found = unwrap(data)
        if found is not None and found[0] not in (JSON, TYPED):
            data = self._backward(*found, where)
        return self.codec.decode(data, type, where=where)

    def _forward(self, data: msgspec.Raw) -> msgspec.Raw:
        current, done = bytes(data), []
        for transform in self.transforms:
            made = transform.forward(current)
            if made is not None:
                current = made
                done.append(transform.tag)
        if not done:
            return data
        return wrap("+".join(done), b'"%b"' % base64.b64encode(current))

    def _backward(self, tag: str, content: msgspec.Raw, where: str) -> bytes:
        names = tag.split("+")
        unknown = [name for name in names if name not in self._by_tag]
        if unknown or len(set(names)) != len(names):
            known = ", ".join(self._by_tag) or "nothing"
            raise Undecodable(
                f"{where}: stored as {'~' + tag!r}, and this codec can undo {known}. Add the transform "
                "that wrote the value to the codec"
            )
        try:
            current = base64.b64decode(msgspec.json.decode(content, type=str), validate=True)
            for name in reversed(names):
                current = self._by_tag[name].backward(current)
        except MemoryError:
            raise
        except Exception as error:
            raise Undecodable(f"{where}: the {'~' + tag!r} envelope is damaged: {error}") from error
        return current


class Zlib:
    """Compress text of at least `threshold` bytes, if that makes it smaller.

    A threshold of None compresses nothing; compressed values can still be read. `max_bytes` limits the
    decompressed size, so that a forged value cannot exhaust the memory; larger values are not compressed.
    """

    tag = "zlib"

    def __init__(
        self, threshold: int | None = 1024, *, level: int = 6, max_bytes: int = 16 * 1024 * 1024
    ) -> None:
        if not -1 <= level <= 9:
            raise InvalidValue(
                f"level={level} is not possible: use 0 (fast) to 9 (small), or -1 for zlib's default"
            )
        if max_bytes < 1 or (threshold is not None and threshold < 0):
            raise InvalidValue(
                f"threshold={threshold}, max_bytes={max_bytes} is not possible: threshold must be at least "
                "0 or None, max_bytes at least 1"
            )
        self.threshold = threshold
        self.level = level
        self.max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"Zlib({self.threshold}, level={self.level}, max_bytes={self.max_bytes})"

    def forward(self, data: bytes) -> bytes | None:
        if self.threshold is None or not self.threshold <= len(data) <= self.max_bytes:
            return None
        packed = zlib.compress(data, self.level)
        # Base64 adds a third, and the envelope a few bytes more.
        return packed if len(packed) * 4 // 3 + 16 < len(data) else None

    def backward(self, data: bytes) -> bytes:
        stream = zlib.decompressobj()
        unpacked = stream.decompress(data, self.max_bytes + 1)
        if len(unpacked) > self.max_bytes:
            raise Undecodable(f"decompresses to more than the {self.max_bytes:,} bytes allowed")
        if not stream.eof or stream.unused_data:
            raise Undecodable("the compressed data is truncated, or followed by other data")
        return unpacked


# -- envelopes -------------------------------------------------------------------------------------


def wrap(tag: str, value: msgspec.Raw | bytes) -> msgspec.Raw:
    """The envelope `tag` around `value`, which is JSON text."""
    return msgspec.Raw(b'{"~%b":%b}' % (tag.encode(), bytes(value)))


def unwrap(data: msgspec.Raw | bytes) -> tuple[str, msgspec.Raw] | None:
    """The tag of an envelope and the JSON text in it, or None if `data` is anything else.

    Malformed JSON is not an envelope: the codec that decodes it next reports the error.
    """
    if _may_be_one(data) is None:
        return None
    try:
        members = _MEMBERS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if len(members) != 1:
        return None
    ((key, value),) = members.items()
    return (key[1:], value) if key.startswith("~") else None


def escape(data: msgspec.Raw | bytes) -> msgspec.Raw:
    """The user's JSON text; in a ``~json`` envelope if `unwrap` would read it as an envelope."""
    if _may_be_one(data) is not None and unwrap(data) is not None:
        return wrap(JSON, data)
    return data if isinstance(data, msgspec.Raw) else msgspec.Raw(data)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])

# msgspec writes no whitespace and does not escape "~", but imported text may contain both:
# `{ "\u007ezlib" : … }` is the same JSON. The members are parsed only if this matches.
_may_be_one = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"[~\\]').match
