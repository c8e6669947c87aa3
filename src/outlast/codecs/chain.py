"""A codec followed by transforms, as one codec: ``JsonCodec() | Zlib() | Encrypt(key)``.

The transforms pass bytes to each other, and one envelope at the end carries the result as base64.
Its tag lists what was done, in order, so that reading needs no settings of the time of writing::

    {"~zlib": "eJyr…"}            compressed
    {"~zlib+encrypt": "gAAA…"}    compressed, then encrypted
    {"order": 7}                  left as it was by all of them

Reading undoes exactly what the tag lists, and only what is in the chain: an unknown name is an
error, and so is a name that comes twice, lest a forged tag make one small value cost much work.
"""

from __future__ import annotations

import base64
import re
from typing import Any

import msgspec

from outlast.codecs import envelope
from outlast.errors import InvalidValue, Undecodable
from outlast.ports.codec import Codec, Transform


class Chain(Codec):
    """`codec`, and then `transforms` from left to right."""

    def __init__(self, codec: Codec, *transforms: Transform) -> None:
        self.codec = codec
        self.transforms = transforms
        self._by_tag = {transform.tag: transform for transform in transforms}
        if len(self._by_tag) != len(transforms):
            raise InvalidValue("two transforms of a chain have the same tag")
        for tag in self._by_tag:
            if not _TAG.fullmatch(tag) or tag in (envelope.JSON, envelope.FACT):
                raise InvalidValue(
                    f"{tag!r} cannot be a transform's tag: use lower-case letters, digits and "
                    "hyphens, and neither 'json' nor 'fact'"
                )

    def __repr__(self) -> str:
        return " | ".join(map(repr, (self.codec, *self.transforms)))

    def __or__(self, transform: Transform) -> Chain:
        return Chain(self.codec, *self.transforms, transform)

    def encode(self, value: object, type: Any = Any, *, where: str = "value") -> msgspec.Raw:
        return self._forward(self.codec.encode(value, type, where=where))

    def decode(self, data: msgspec.Raw | bytes, type: Any = Any, *, where: str = "value") -> Any:
        found = envelope.unwrap(data)
        if found is not None and found[0] != envelope.JSON:
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
        return envelope.wrap("+".join(done), b'"%b"' % base64.b64encode(current))

    def _backward(self, tag: str, content: msgspec.Raw, where: str) -> bytes:
        names = tag.split("+")
        unknown = [name for name in names if name not in self._by_tag]
        if unknown or len(set(names)) != len(names):
            known = ", ".join(self._by_tag) or "nothing"
            raise Undecodable(
                f"{where}: stored in the form {'~' + tag!r}, and this codec can undo {known}. Add "
                "the transform that wrote it to the codec"
            )
        try:
            current = base64.b64decode(msgspec.json.decode(content, type=str), validate=True)
            for name in reversed(names):
                current = self._by_tag[name].backward(current)
        except MemoryError:
            raise
        except Exception as error:
            raise Undecodable(f"{where}: damaged inside its {'~' + tag!r} form: {error}") from error
        return current


_TAG = re.compile(r"[a-z0-9-]+")
