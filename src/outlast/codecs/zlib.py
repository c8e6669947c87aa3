"""Compression of larger values by the standard library's zlib."""

from __future__ import annotations

import zlib

from outlast.errors import InvalidValue, Undecodable


class Zlib:
    """Compress text from `threshold` bytes on, where that makes it smaller.

    A threshold of None compresses nothing and still reads what was compressed before. `max_bytes`
    limits what one value may unfold to, so that a forged one cannot fill the memory; larger values
    are not compressed in the first place.
    """

    tag = "zlib"

    def __init__(
        self, threshold: int | None = 1024, *, level: int = 6, max_bytes: int = 16 * 1024 * 1024
    ) -> None:
        if not -1 <= level <= 9:
            raise InvalidValue("level is between 0 (fast) and 9 (small), or -1 for zlib's own")
        if max_bytes < 1 or (threshold is not None and threshold < 0):
            raise InvalidValue("max_bytes is at least 1 and threshold at least 0")
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
            raise Undecodable(f"unfolds to more than the {self.max_bytes:,} bytes allowed")
        if not stream.eof or stream.unused_data:
            raise Undecodable("the compressed data is cut short, or something follows it")
        return unpacked
