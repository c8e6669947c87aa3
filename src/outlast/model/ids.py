"""Ids: generation of outlast's own, validation of the user's, and the tree that a run id encodes.

Generated ids are UUIDv7 texts: they sort by creation time and only grow within a process, so that an
index on them is appended to.

Users name runs, tasks, timers and signals; `check_id` validates run ids and `check_name` the others.
Characters with a meaning in a backend (``:`` and ``{}`` in Redis keys, control characters in terminals
and logs) are refused rather than escaped, so that an id looks the same everywhere. ``~`` is reserved: it
separates a run from its children, so that tree and partition follow from the id.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
import zlib
from base64 import b32encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

from outlast.errors import InvalidId

MAX_ID_BYTES = 255
MAX_CHILD_ID_BYTES = 1024
CHILD_PATH_BYTES = 512
"""The id of a child is at most this much longer than the id of its root."""
CHILD_NAME_LENGTH = 60
"""The length, in characters, of a key in a shortened path."""
SEPARATOR = "~"
SCHEDULE_OF = "schedule of "
"""The prefix in the name of the internal workflow that runs a workflow's schedules."""

# Fast path: matches most ids.
_plain = re.compile(r"[A-Za-z0-9 _./@+=,-]{1,255}").fullmatch
_FORBIDDEN = {":": "a colon", "{": "a brace", "}": "a brace"}

# The last 48 bits of an id are counted with a leading 1 bit, so that `hex` writes all 12 digits.
_TAIL, _FULL = 1 << 48, 2 << 48

_lock = threading.Lock()
_random = random.Random(os.urandom(32))
_time_ns = time.time_ns


class _Front(NamedTuple):
    """The common prefix of the ids of one millisecond, and the counter for their tails.

    48 bits of milliseconds are followed by 74 bits that start at a random number and grow by a random
    increment of up to 2^32, so that ids of different processes do not collide. `upper` is everything but
    the tail. Each step needs three ids, so the prefix is formatted once, and counting needs no lock.
    """

    upper: int
    text: str
    tails: Iterator[int]
    until: int


def _next_front(before: int, now: int) -> _Front:
    """A prefix greater than the one with `before` as upper bits, even if the clock was set back."""
    millisecond = now // 1_000_000
    upper = max(millisecond << 26 | _random.getrandbits(25), before + 1)
    # RFC 9562: version 7 and variant 2 are between the parts.
    text = f"{upper >> 26:012x}7{upper >> 14 & 0xFFF:03x}{0x8000 | upper & 0x3FFF:04x}"
    return _Front(
        upper,
        f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:]}-",
        count(_TAIL + _random.getrandbits(47), 1 + _random.getrandbits(32)),
        (millisecond + 1) * 1_000_000,
    )


_front = _next_front(0, _time_ns())


def new_id() -> str:
    """A UUIDv7 that is greater than all earlier ones of this process."""
    global _front
    front = _front
    tail, now = next(front.tails), _time_ns()
    while tail >= _FULL or now >= front.until:
        with _lock:
            if front is _front:
                _front = _next_front(front.upper, now)
        front = _front
        tail = next(front.tails)
    return front.text + hex(tail)[3:]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Generate ids from `seed` alone in this block, so that a simulation is repeatable. Two blocks with
    the same seed generate the same ids, so do not use them outside."""
    global _random, _time_ns, _front
    before = _random, _time_ns, _front
    _random, _time_ns = random.Random(seed), lambda: 0
    _front = _next_front(0, 0)
    try:
        yield
    finally:
        _random, _time_ns, _front = before


def _reseed_after_fork() -> None:
    # A forked child would otherwise repeat its parent's ids, and may inherit a locked lock.
    global _lock, _front
    _lock = threading.Lock()
    _random.seed(os.urandom(32))
    _front = _next_front(_front.upper, _time_ns())


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_reseed_after_fork)


def check_id(value: object, what: str = "run id", *, child: bool = False) -> str:
    """Return `value` if it is a valid id, else raise `InvalidId` that says what to change.

    With ``child`` the separator ``~`` is allowed between non-empty parts, as in the id of a child.
    """
    if not isinstance(value, str):
        raise InvalidId(f"the {what} must be a str, not {type(value).__name__}")
    if _plain(value):
        return value
    if not value:
        raise InvalidId(f"the {what} is empty: give it at least one character")
    limit = MAX_CHILD_ID_BYTES if child else MAX_ID_BYTES
    # The length in characters is checked first, so that a 10 MB text is refused without encoding it.
    if len(value) > limit or _utf8_length(value, what) > limit:
        raise InvalidId(
            f"the {what} {value[:40]!r}… is longer than {limit} bytes: "
            "use a shorter one, for instance a hash of it"
        )
    for character in value:
        if character < " " or character == "\x7f" or "\x80" <= character <= "\x9f":
            raise InvalidId(
                f"the {what} {value[:80]!r} contains the control character {character!r}: remove it"
            )
        if character in _FORBIDDEN:
            raise InvalidId(
                f"the {what} {value[:80]!r} contains {_FORBIDDEN[character]}: "
                "use '-', '_', '.' or '/' instead"
            )
    if SEPARATOR in value and not (child and all(value.split(SEPARATOR))):
        raise InvalidId(
            f"the {what} {value[:80]!r} contains '~', which separates a run from its children: "
            "use '-', '_', '.' or '/' instead"
        )
    return value


def check_name(value: object, what: str) -> str:
    """Check a name inside a run (task, timer, signal, step key, owner): text without control
    characters, 1 to 1,024 bytes. It is never a backend key on its own, so more characters are allowed."""
    if not isinstance(value, str):
        raise InvalidId(f"the {what} must be a str, not {type(value).__name__}")
    if _plain(value):
        return value
    if not value:
        raise InvalidId(f"the {what} is empty: give it at least one character")
    if len(value) > MAX_CHILD_ID_BYTES or _utf8_length(value, what) > MAX_CHILD_ID_BYTES:
        raise InvalidId(
            f"the {what} {value[:40]!r}… is longer than {MAX_CHILD_ID_BYTES} bytes: "
            "use a shorter one, for instance a hash of it"
        )
    if not value.isprintable() and any(c < " " or "\x7f" <= c <= "\x9f" for c in value):
        raise InvalidId(f"the {what} {value[:80]!r} contains a control character: remove it")
    return value


def root_of(run_id: str) -> str:
    """The root of the tree that a run belongs to: its id up to the first ``~``."""
    return run_id.partition(SEPARATOR)[0]


def parent_of(run_id: str) -> str | None:
    """The parent of a child, by its id; None for a root."""
    return run_id.rpartition(SEPARATOR)[0] or None


def child_id(parent: str, key: str, life: str = "") -> str:
    """The id of the child that a run starts under `key`: the parent's id, ``~`` and the key. `life` is the
    uid of the parent's life, given if an earlier life had the same id: children of that life may still
    run, and must not be mistaken for this child. A long path is shortened by a hash, so that children can
    nest to any depth."""
    part = key.replace(":", ".")  # an id cannot contain a colon
    if life:
        part = f"{part}@{_digest(life)}"
    path = f"{parent}{SEPARATOR}{part}"
    root = root_of(parent)
    if len(path.encode()) - len(root.encode()) <= CHILD_PATH_BYTES:
        return path
    return f"{root}{SEPARATOR}{_digest(path)}{SEPARATOR}{part[-CHILD_NAME_LENGTH:]}"


def _digest(text: str) -> str:
    """80 bits of a hash, in 16 letters and digits."""
    return b32encode(blake2b(text.encode(), digest_size=10).digest()).decode().lower()


def partition_of(run_id: str, partitions: int) -> int:
    """The partition in which a run's whole tree lives."""
    return zlib.crc32(root_of(run_id).encode()) % partitions


def _utf8_length(value: str, what: str) -> int:
    try:
        return len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidId(
            f"the {what} {value[:40]!r} contains a lone surrogate, which is not text: "
            "decode the original bytes as UTF-8"
        ) from error
