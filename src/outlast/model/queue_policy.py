"""QueuePolicy: how many tasks of a queue run at once, how often they start, and which key is next.

`QueueOptions` says in which queue a run waits before it starts, and until when. `allocate` shares free
places among the keys of a queue.

The tasks of a queue are grouped by fair key (a tenant, a customer, a device). Keys are served by
stride scheduling::

    fair key "acme"  ▯▯▯▯▯▯▯▯▯  ╲
    fair key "bolt"  ▯           ─▶ the fair key with the smallest pass, if its limits allow ─▶ worker
    fair key ""      ▯▯▯        ╱

Each fair key has a `pass`: a task that is handed out adds `STRIDE` divided by the weight of its key, and the
fair key with the smallest pass is next. A fair key that was empty starts at the queue's `global_pass` (the pass of
the key served last), so that no fair key saves up turns, and a new fair key waits for at most one round.

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

from outlast._public import public
from outlast.errors import InvalidValue
from outlast.model.ids import check_name
from outlast.model.times import check_delay, check_moment

STARTS = "starts"
"""The queue of runs that only wait for a time."""


@public
class QueueOptions(Struct, frozen=True, omit_defaults=True):
    """How a run waits in a named queue. The queue's policy decides when the run starts; from then on it
    is in flight until it ends.

    Runs with the same `key` form a fair key, and fair keys are served fairly; within a fair key the smallest
    `priority` is first. With `delay` (seconds) or `at` the run does not start before that time.
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
                f"priority={self.priority!r} is not possible: use an integer of 32 bits; the smallest is "
                "served first"
            )
        delay: object = self.delay
        if type(delay) not in (int, float, timedelta):
            raise InvalidValue(f"delay={delay!r} is not possible: give seconds or a timedelta")
        given: object = self.at
        if given is not None and not isinstance(given, datetime):
            raise InvalidValue(f"at={given!r} is not possible: give a datetime with a time zone")
        seconds = self.delay.total_seconds() if isinstance(self.delay, timedelta) else self.delay
        check_delay(seconds)
        at = self.at
        if at is not None:
            check_moment(at, "the time at which a run starts")
            if seconds:
                raise InvalidValue("`at` and `delay` are both given: give one of them")
        elif seconds:
            at = now + timedelta(seconds=seconds)
        return QueueOptions(self.queue, self.key, self.priority, at)


T = TypeVar("T")

STRIDE = 1_000_000
MAX_KEY_BYTES = 512
MAX_LIMIT = 1_000_000
MAX_PERIOD = 366 * 86_400.0
MAX_STARTS_PER_S = 1_000_000
"""The store's clock has microseconds."""
MAX_WEIGHT, MIN_WEIGHT = 1000.0, 0.001
MAX_WEIGHTS = 10_000
KEPT_CHANGES = 250
"""Audit lines kept for each queue."""


@public
class Rate(Struct, frozen=True, omit_defaults=True):
    """At most `limit` starts in any `per` seconds."""

    limit: int
    per: float = 1.0


@public
class QueuePolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policy of a named queue. A limit that is left out does not apply.

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
    """Condition of an update: the policy that the writer has read (None: there was none)."""

    policy: QueuePolicy | None


class FairKey(Struct, kw_only=True):
    """The tasks of one key in a queue and in the queues of its steps; the input of `allocate`."""

    key: str
    pass_value: int
    ready: int
    """How many tasks are ready."""
    more: bool = False
    """Whether more tasks may be ready: an adapter may stop counting."""
    in_flight: int = 0
    started: int = 0
    """How many tasks started within the period of `QueuePolicy.key_rate`."""


class Shares(Struct, frozen=True):
    """The result of `allocate`: how many tasks each key gets; the queue's `global_pass` afterwards; and the
    keys that got all tasks that the adapter counted, so that it should count more."""

    given: dict[str, int]
    global_pass: int
    short: frozenset[str]


def allocate(
    policy: QueuePolicy,
    fair_keys: Iterable[FairKey],
    room: int,
    *,
    global_pass: int = 0,
    in_flight: int = 0,
    started: int = 0,
) -> Shares:
    """Share `room` places among the fair keys, and advance their `pass_value`. `in_flight` and `started` are
    totals of the queue; `global_pass` is the one of the previous result."""
    room = min(room, queue_room(policy, in_flight=in_flight, started=started))
    turns = []
    for own in fair_keys:
        most = key_room(policy, own)
        if most > 0:
            turns.append((max(own.pass_value, global_pass), own.pass_value, own.key, own, most))
    heapq.heapify(turns)
    given: dict[str, int] = {}
    short: set[str] = set()
    while room > 0 and turns:
        global_pass, _, key, own, most = turns[0]
        given[key] = given.get(key, 0) + 1
        own.pass_value = global_pass + stride(policy, key)
        room -= 1
        if given[key] < most:
            heapq.heapreplace(turns, (own.pass_value, own.pass_value, key, own, most))
        else:
            heapq.heappop(turns)
            if own.more and most == own.ready:
                short.add(key)
    return Shares(given, global_pass, frozenset(short))


def queue_room(policy: QueuePolicy, *, in_flight: int, started: int) -> int:
    """How many more tasks the limits of the whole queue allow."""
    if policy.paused:
        return 0
    left = MAX_LIMIT
    if policy.concurrency is not None:
        left = min(left, policy.concurrency - in_flight)
    if policy.rate is not None:
        left = min(left, policy.rate.limit - started)
    return left


def key_room(policy: QueuePolicy, fair_key: FairKey) -> int:
    """How many more tasks of a fair key the limits of a key allow. Tasks without a key have no such limits."""
    left = fair_key.ready
    if fair_key.key and policy.key_concurrency is not None:
        left = min(left, policy.key_concurrency - fair_key.in_flight)
    if fair_key.key and policy.key_rate is not None:
        left = min(left, policy.key_rate.limit - fair_key.started)
    return left


def stride(policy: QueuePolicy, key: str) -> int:
    """How much one task adds to the pass of its fair_key."""
    return max(1, round(STRIDE / policy.weight(key)))


def urgency(policy: QueuePolicy, priority: int, ready_at: int) -> tuple[float, int]:
    """The sort key of the tasks of a fair key, the smallest first; times in microseconds. With ageing, a
    priority level equals a waiting time, so that the order of two tasks never changes."""
    if policy.ageing is None:
        return priority, ready_at
    return priority * policy.ageing * 1_000_000 + ready_at, ready_at


def counts_places(policy: QueuePolicy | None) -> bool:
    """Whether another task may have taken the place of a task whose lease expired. If so, the lease cannot
    be renewed, even if the task was not claimed again."""
    return policy is not None and (
        policy.concurrency is not None or policy.key_concurrency is not None
    )


def scope_of(queue: str) -> str:
    """The queue whose policy applies: `gpu` for `gpu/render`, which has the tasks of one step."""
    return queue.partition("/")[0]


def encode_policy(policy: QueuePolicy) -> bytes:
    """A policy as it is stored: equal policies have equal bytes."""
    plain = decode_policy(msgspec.json.encode(policy))  # 3 and 3.0 are equal
    return msgspec.json.encode(plain, order="sorted")


decode_policy = msgspec.json.Decoder(QueuePolicy).decode


def check_policy(policy: QueuePolicy) -> QueuePolicy:
    """Raise for a policy that no queue can apply."""
    try:
        msgspec.convert(msgspec.to_builtins(policy), QueuePolicy, strict=True)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidValue(
            f"the policy of queue {getattr(policy, 'queue', policy)!r} has a value of the wrong type: {error}. "
            "Limits are integers, times are seconds, `paused` is True or False"
        ) from error
    check_queue(policy.queue)
    _check_count(policy.concurrency, "concurrency")
    _check_count(policy.key_concurrency, "key_concurrency")
    _check_rate(policy.rate, "rate")
    _check_rate(policy.key_rate, "key_rate")
    if len(policy.weights) > MAX_WEIGHTS:
        raise InvalidValue(
            f"queue {policy.queue!r} has {len(policy.weights):,} weights, and each dequeue reads them: set "
            f"weights for at most {MAX_WEIGHTS:,} keys; all others have 1"
        )
    for key, weight in policy.weights.items():
        check_key(key)
        if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
            raise InvalidValue(
                f"a weight of {weight} for {key!r} is not possible: use {MIN_WEIGHT} to {MAX_WEIGHT:.0f} "
                "(the default is 1). To stop a key, cancel its runs"
            )
    if policy.ageing is not None and not 0 < policy.ageing <= MAX_PERIOD:
        raise InvalidValue(
            f"ageing={policy.ageing} is not possible: give the seconds of waiting that equal one priority "
            "level, at most a year, or leave it out"
        )
    return policy


def check_queue(name: object) -> str:
    """Raise for an invalid name of a queue as users write it: without a slash."""
    checked = check_name(name, "queue name")
    if "/" in checked:
        raise InvalidValue(
            f"queue name {checked!r} contains a slash, which separates a queue from its steps: "
            "use '-', '_' or '.' instead"
        )
    return checked


def check_key(key: object) -> str:
    """Raise for an invalid fairness key. An empty text means no key."""
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
    if rate.limit / rate.per > MAX_STARTS_PER_S:
        raise InvalidValue(
            f"{name} of {rate.limit} in {rate.per} s is more than the clock can resolve: use at most "
            f"{MAX_STARTS_PER_S:,} a second, or no rate"
        )


def window(policy: QueuePolicy) -> float:
    """For how many seconds the store must keep the time of a start."""
    return max(
        (rate.per for rate in (policy.rate, policy.key_rate) if rate is not None), default=0.0
    )


def rotated(parts: Sequence[T], at: int) -> list[T]:
    """The same sequence from another start, so that no part is always first."""
    start = at % len(parts) if parts else 0
    return [*parts[start:], *parts[:start]]


def scopes(queues: Iterable[str]) -> dict[str, list[str]]:
    """Queues by the queue whose policy applies to them; see `scope_of`."""
    found: dict[str, list[str]] = {}
    for queue in queues:
        found.setdefault(scope_of(queue), []).append(queue)
    return found
