"""Fact: a value stored once by the hash of its content."""

from __future__ import annotations

import hashlib

from msgspec import Struct


class Fact(Struct, frozen=True):
    """Bytes under their SHA-256. `root` is the tree that owns it; empty for the namespace of
    facts that are saved and deleted on their own."""

    hash: str
    data: bytes
    root: str = ""

    @classmethod
    def of(cls, data: bytes, root: str = "") -> Fact:
        """The fact that holds `data`."""
        return cls(hash=hash_of(data), data=data, root=root)


def hash_of(data: bytes) -> str:
    """The name of a fact: the SHA-256 of its bytes, in hex."""
    return hashlib.sha256(data).hexdigest()
