"""Names of keys. The heads of the scripts and docs/reference/redis.md describe the layout.

A key is the prefix of its partition and a name: ``outlast:wf:order-7:state`` in a store of one
partition, ``outlast:{3}:wf:order-7:state`` in one of several. The braces make the partition the hash
tag, so that Redis Cluster keeps it in one slot.

User text is encoded without separators, hash tags and control characters: two texts never give the same key, and
no text gives a key of another kind.
"""

from __future__ import annotations

import re
import zlib

from outlast.errors import InvalidValue
from outlast.model.ids import partition_of

_RESERVED = re.compile(r"[%:{}\x00-\x1f\x7f]")
_PREFIX = re.compile(r"[A-Za-z0-9_./@+=,-]+(:[A-Za-z0-9_./@+=,-]+)*")
MAX_PREFIX_CHARS = 200
MAX_PARTITIONS = 1024

OWNED = (
    "state", "seq", "events", "event-ids", "inbox", "items", "timers", "entries", "activities",
    "snapshot", "tasks", "keys", "facts",
)  # fmt: skip
"""The keys of a run."""

TASKS = (
    "task:data", "task:state", "task:free", "task:keyed", "task:held", "task:order",
    "dead:data", "dead:state", "dead:order",
    "fair:state", "fair:turn", "fair:asleep", "fair:blocked", "fair:pass",
    "fair:by-pass",
    "slot:state", "slot:held", "slot:until", "slot:returns",
    "policy:homes", "policy:limits", "policy:global-pass",
)  # fmt: skip
"""The keys of a script that adds, leases or removes a task."""
POLICY = (*TASKS, "policy:rules", "policy:declared", "policy:starts", "policy:key-starts")
"""The same, and the keys of the home partition of a scope."""
CLAIM_INDEXES = ("runnable", "held")


def encoded(text: str) -> str:
    """User text as a part of a name. Injective; lib/prelude.lua does the same."""
    if not text:
        return "%"
    return _RESERVED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def decoded(part: str) -> str:
    """The inverse of `encoded`."""
    if part == "%":
        return ""
    return re.sub("%([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), part)


def of_run(run_id: str, what: str) -> str:
    """The name of something that a run owns."""
    return f"wf:{encoded(run_id)}:{what}"


def timer_name(run_id: str, timer_id: str) -> str:
    """The name of a timer's record."""
    return f"timer:{encoded(run_id)}:{encoded(timer_id)}"


def activity_name(activity_id: str) -> str:
    """The name of an activity's state."""
    return f"act:{encoded(activity_id)}:state"


def fact_name(hash: str) -> str:
    """The name of a fact of the free namespace."""
    return f"fact:{encoded(hash)}"


def key_name(scope: str, key: str) -> str:
    """The name of an idempotency key. Two scopes have the names that the seeds gave them."""
    known = {"start": "start", "activity": "act"}.get(scope)
    return f"idem:{known or '=' + encoded(scope)}:{encoded(key)}"


def key_of(name: str) -> tuple[str, str]:
    """The scope and the key that `key_name` was given."""
    _, scope, key = name.split(":")  # what is encoded has no colon
    known = {"start": "start", "act": "activity"}.get(scope)
    return known or decoded(scope[1:]), decoded(key)


def sortable(number: int) -> bytes:
    """A number as text of one width that sorts like it; `sortable` of lib/prelude.lua."""
    if number < 0:
        return b"0" + bytes(105 - digit for digit in b"%020d" % -number)
    return b"1%020d" % number


def unsorted(text: bytes) -> int:
    """The number that `sortable` has written."""
    if text[:1] == b"1":
        return int(text[1:])
    return -int(bytes(105 - digit for digit in text[1:]))


def framed(text: str | bytes) -> bytes:
    """Text with its length in front; `framed` of lib/prelude.lua."""
    raw = text.encode() if isinstance(text, str) else text
    return b"%08x%s" % (len(raw), raw)


class Layout:
    """A prefix and a number of partitions."""

    def __init__(self, prefix: str, partitions: int, *, tagged: bool) -> None:
        if not _PREFIX.fullmatch(prefix) or len(prefix) > MAX_PREFIX_CHARS:
            raise InvalidValue(
                f"prefix {prefix[:80]!r} is not possible: use 1 to {MAX_PREFIX_CHARS} letters, digits and "
                "_./@+=,- with single colons between them"
            )
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidValue(
                f"{partitions} partitions are not possible: use 1 to {MAX_PARTITIONS}"
            )
        self.prefix = prefix
        self.partitions = partitions
        self.tagged = tagged
        self.prefixes = [
            (f"{prefix}:{{{part}}}:" if tagged else f"{prefix}:").encode()
            for part in range(partitions)
        ]

    def part_of(self, run_id: str) -> int:
        """The partition in which a run's whole tree lives."""
        return partition_of(run_id, self.partitions) if self.partitions > 1 else 0

    def part_for(self, text: str) -> int:
        """The partition of what belongs to no run."""
        return zlib.crc32(text.encode()) % self.partitions if self.partitions > 1 else 0

    def part_of_task(self, queue: str, run_id: str) -> int:
        """The partition of a task: that of its run, else that of its queue, so that tasks of no
        run are added all or none."""
        return self.part_of(run_id) if run_id else self.part_for(queue)

    def key(self, part: int, name: str) -> bytes:
        """A key."""
        return self.prefixes[part] + name.encode()

    @property
    def channel(self) -> str:
        """Where the wake-up channel sends a wake-up."""
        return f"{self.prefix}:wakeups"
