"""QueueOptions: in which queue a run waits before it starts, and until when.

QueuePolicy: how many tasks of a queue run at once, how often they start, and which key is next.

The tasks of a queue form lines, one for each key (a tenant, a customer, a device). Lines take turns by
stride scheduling::

    line "acme"  ▯▯▯▯▯▯▯▯▯  ╲
    line "bolt"  ▯           ─▶ the line with the smallest pass, if its limits allow ─▶ worker
    line ""      ▯▯▯        ╱

Each line has a `pass`: a task that is handed out adds `STRIDE` divided by the line's weight, and the
line with the smallest pass is next. A line that was empty starts at the queue's `present` (the pass of
the line served last), so that no line saves up turns, and a new line waits for at most one round.

These decisions are the same on every store; stores differ in how they find and lease tasks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
from msgspec import Struct

from outlast.errors import InvalidValue
from outlast.model.ids import check_name
from outlast.model.times import check_delay, check_moment

STARTS = "starts"
"""The queue of runs that only wait for a time."""


class QueueOptions(Struct, frozen=True, omit_defaults=True):
    """How a run waits in a named queue. The queue's policy decides when the run starts; from then on it
    is in flight until it ends.

    Runs with the same `key` form a line, and lines take turns; the smallest `priority` of a line is
    first. With `delay` (seconds) or `at` it does not start before that time.
    """

    queue: str = STARTS
    key: str = ""
    priority: int = 0
    at: datetime | None = None
    delay: float | timedelta = 0.0

    def resolved(self, now: datetime) -> QueueOptions:
        """The same options, checked, with a time instead of a delay."""
        check_queue(self.queue)
        check_key(self.key)
        if type(self.priority) is not int or abs(self.priority) >= 2**31:
            raise InvalidValue(
                f"priority={self.priority!r} is not possible: use a whole number of 32 bits, the "
                "smallest goes first"
            )
        delay: object = self.delay
        if type(delay) not in (int, float, timedelta):
            raise InvalidValue(f"delay={delay!r} is not possible: give seconds or a timedelta")
        begins: object = self.at
        if begins is not None and not isinstance(begins, datetime):
            raise InvalidValue(f"at={begins!r} is not possible: give a datetime with a time zone")
        seconds = self.delay.total_seconds() if isinstance(self.delay, timedelta) else self.delay
        check_delay(seconds)
        at = self.at
        if at is not None:
            check_moment(at, "the time at which a run begins")
            if seconds:
                raise InvalidValue("a run has `at` and `delay`: give one of them")
        elif seconds:
            at = now + timedelta(seconds=seconds)
        return QueueOptions(self.queue, self.key, self.priority, at)


T = TypeVar("T")

STRIDE = 1_000_000
MAX_KEY_BYTES = 512
MAX_LIMIT = 1_000_000
MAX_PERIOD = 366 * 86_400.0
FINEST = 1_000_000
"""Starts a second: the store's clock has microseconds."""
HEAVIEST, LIGHTEST = 1000.0, 0.001
MAX_WEIGHTS = 10_000
KEPT_CHANGES = 250
"""Audit lines kept for each queue."""


class Rate(Struct, frozen=True, omit_defaults=True):
    """At most `limit` starts in any `per` seconds."""

    limit: int
    per: float = 1.0


class QueuePolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policy of a named queue. What is left out is not limited.

    - `concurrency`: how many may be in flight at once, over all workers.
    - `key_concurrency`: how many of one key.
    - `rate` and `key_rate`: how often one may start.
    - `weights`: the share of a key; the default is 1.
    - `ageing`: after so many seconds of waiting, a task counts as one priority more urgent, which
      prevents starvation.
    - `paused`: nothing starts; what is in flight continues.
    """

    queue: str
    concurrency: int | None = None
    key_concurrency: int | None = None
    rate: Rate | None = None
    key_rate: Rate | None = None
    weights: dict[str, float] = {}
    ageing: float | None = None
    paused: bool = False

    def weight(self, key: str) -> float:
        """The share of a key."""
        return self.weights.get(key, 1.0)


class PolicyChange(Struct, frozen=True, kw_only=True):
    """An audit line: who changed the policy of a queue, when, and to what. None: removed."""

    queue: str
    at: datetime
    by: str
    policy: QueuePolicy | None


class ExpectedPolicy(Struct, frozen=True):
    """The policy that a writer has read (None: none) and replaces only if it is still the same."""

    policy: QueuePolicy | None


class Line(Struct, kw_only=True):
    """The tasks of one key in a queue, with all its steps, before some are handed out."""

    key: str
    passed: int
    ready: int
    """How many could be handed out."""
    more: bool = False
    """Whether there may be more: an adapter need not count further than it thinks is needed."""
    in_flight: int = 0
    started: int = 0
    """How many have started within the period of `QueuePolicy.key_rate`."""


class Shares(Struct, frozen=True):
    """How many tasks each line hands out, by key; the queue's `present` after that; and which keys got
    all tasks that were counted, so that more should be counted."""

    given: dict[str, int]
    present: int
    short: frozenset[str]


def allocate(
    policy: QueuePolicy,
    lines: Iterable[Line],
    room: int,
    *,
    present: int = 0,
    in_flight: int = 0,
    started: int = 0,
) -> Shares:
    """Who is served now, in turns; `Line.passed` is moved on. `in_flight` and `started` are those of
    the whole queue, `present` is where the last call has left it."""
    room = min(room, queue_room(policy, in_flight=in_flight, started=started))
    turns = []
    for line in lines:
        most = line_room(policy, line)
        if most > 0:
            turns.append((max(line.passed, present), line.passed, line.key, line, most))
    heapq.heapify(turns)
    given: dict[str, int] = {}
    short: set[str] = set()
    while room > 0 and turns:
        present, _, key, line, most = turns[0]
        given[key] = given.get(key, 0) + 1
        line.passed = present + stride(policy, key)
        room -= 1
        if given[key] < most:
            heapq.heapreplace(turns, (line.passed, line.passed, key, line, most))
        else:
            heapq.heappop(turns)
            if line.more and most == line.ready:
                short.add(key)
    return Shares(given, present, frozenset(short))


def queue_room(policy: QueuePolicy, *, in_flight: int, started: int) -> int:
    """How many more the rules of the whole queue allow."""
    if policy.paused:
        return 0
    left = MAX_LIMIT
    if policy.concurrency is not None:
        left = min(left, policy.concurrency - in_flight)
    if policy.rate is not None:
        left = min(left, policy.rate.limit - started)
    return left


def line_room(policy: QueuePolicy, line: Line) -> int:
    """How many more of one line its own rules allow. Tasks without a key have no such rules."""
    left = line.ready
    if line.key and policy.key_concurrency is not None:
        left = min(left, policy.key_concurrency - line.in_flight)
    if line.key and policy.key_rate is not None:
        left = min(left, policy.key_rate.limit - line.started)
    return left


def stride(policy: QueuePolicy, key: str) -> int:
    """How far one task moves its line on."""
    return max(1, round(STRIDE / policy.weight(key)))


def urgency(policy: QueuePolicy, priority: int, ready_at: int) -> tuple[float, int]:
    """What tasks of a line are ordered by, the smallest first; times in microseconds. With ageing
    a level of priority is worth so much waiting, and the order of two tasks never changes."""
    if policy.ageing is None:
        return priority, ready_at
    return priority * policy.ageing * 1_000_000 + ready_at, ready_at


def counts_places(policy: QueuePolicy | None) -> bool:
    """Whether an expired lease may have lost its place to another task: then it cannot be renewed,
    even if the task was not claimed again."""
    return policy is not None and (
        policy.concurrency is not None or policy.key_concurrency is not None
    )


def scope_of(queue: str) -> str:
    """The queue whose rules hold: `gpu` for `gpu/render`, where the tasks of one step wait."""
    return queue.partition("/")[0]


def encode_policy(policy: QueuePolicy) -> bytes:
    """Rules as they are stored: the same bytes for equal rules."""
    plain = decode_policy(msgspec.json.encode(policy))  # 3 and 3.0 are equal
    return msgspec.json.encode(plain, order="sorted")


decode_policy = msgspec.json.Decoder(QueuePolicy).decode


def check_policy(policy: QueuePolicy) -> QueuePolicy:
    """Raise for a policy that no queue can apply."""
    try:
        msgspec.convert(msgspec.to_builtins(policy), QueuePolicy, strict=True)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidValue(
            f"a rule of queue {getattr(policy, 'queue', policy)!r} has the wrong type: {error}. Limits are "
            "whole numbers, times are seconds, `paused` is True or False"
        ) from error
    check_queue(policy.queue)
    _check_count(policy.concurrency, "concurrency")
    _check_count(policy.key_concurrency, "key_concurrency")
    _check_rate(policy.rate, "rate")
    _check_rate(policy.key_rate, "key_rate")
    if len(policy.weights) > MAX_WEIGHTS:
        raise InvalidValue(
            f"queue {policy.queue!r} has {len(policy.weights):,} weights, and every take reads them: give "
            f"them to at most {MAX_WEIGHTS:,} keys; all others have 1"
        )
    for key, weight in policy.weights.items():
        check_key(key)
        if not LIGHTEST <= weight <= HEAVIEST:
            raise InvalidValue(
                f"a weight of {weight} for {key!r} is not possible: use {LIGHTEST} to {HEAVIEST:.0f},"
                " where others have 1. To stop a key, cancel its runs"
            )
    if policy.ageing is not None and not 0 < policy.ageing <= MAX_PERIOD:
        raise InvalidValue(
            f"ageing={policy.ageing} is not possible: give the seconds of waiting that are worth one "
            "priority, or leave it out"
        )
    return policy


def check_queue(name: object) -> str:
    """Refuse the name of a queue that people write: it is the part before the slash."""
    checked = check_name(name, "queue name")
    if "/" in checked:
        raise InvalidValue(
            f"queue name {checked!r} contains a slash, which separates a queue from its steps: "
            "use '-', '_' or '.' instead"
        )
    return checked


def check_key(key: object) -> str:
    """Refuse a key that no queue may hold. Empty: no key."""
    if key == "":
        return ""
    if isinstance(key, str) and len(key) > MAX_KEY_BYTES:
        raise InvalidValue(
            f"key {key[:40]!r}… has {len(key):,} characters, the limit is {MAX_KEY_BYTES} bytes: "
            "use an id, or a hash of it"
        )
    checked = check_name(key, "key")
    if len(checked.encode()) > MAX_KEY_BYTES:
        raise InvalidValue(
            f"key {checked[:40]!r}… is longer than {MAX_KEY_BYTES} bytes: use an id, or a hash of it"
        )
    return checked


def _check_count(count: int | None, name: str) -> None:
    if count is not None and not 1 <= count <= MAX_LIMIT:
        raise InvalidValue(
            f"{name}={count} is not possible: use 1 to {MAX_LIMIT:,}, leave it out for no limit, "
            "or paused=True to start nothing"
        )


def _check_rate(rate: Rate | None, name: str) -> None:
    if rate is None:
        return
    _check_count(rate.limit, f"{name}.limit")
    if not (math.isfinite(rate.per) and 0 < rate.per <= MAX_PERIOD):
        raise InvalidValue(
            f"{name}.per={rate.per} is not possible: give a number of seconds, at most a year"
        )
    if rate.limit / rate.per > FINEST:
        raise InvalidValue(
            f"{name} of {rate.limit} in {rate.per} s is finer than the clock, which counts "
            f"microseconds: use at most {FINEST:,} a second, or no rate"
        )


def window(policy: QueuePolicy) -> float:
    """For how many seconds a start must be remembered."""
    return max(
        (rate.per for rate in (policy.rate, policy.key_rate) if rate is not None), default=0.0
    )


def rotated(parts: Sequence[T], at: int) -> list[T]:
    """The same from another beginning each time, so that what comes first by chance does not always
    come first."""
    begin = at % len(parts) if parts else 0
    return [*parts[begin:], *parts[:begin]]


def scopes(queues: Iterable[str]) -> dict[str, list[str]]:
    """Queues by the scope whose rules hold for them."""
    found: dict[str, list[str]] = {}
    for queue in queues:
        found.setdefault(scope_of(queue), []).append(queue)
    return found
