"""Which tasks are handed out next: `outlast.model.queue_policy`, by a full scan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from outlast.model.queue_policy import (
    FairKey,
    QueuePolicy,
    allocate,
    rotated,
    scope_of,
    scopes,
    urgency,
    window,
)
from outlast.model.stats import (
    KEYS_SHOWN,
    KeyStats,
    QueueStats,
    blocked_by,
    key_blocked_by,
)
from outlast.model.times import to_micros
from outlast.stores.memory.tables import QueuedTask, Tables


def next_tasks(
    tables: Tables, queues: Collection[str], room: int, now: datetime
) -> list[QueuedTask]:
    """The next tasks, at most `room`; they count as started."""
    plain: list[QueuedTask] = []
    ruled: list[tuple[QueuePolicy, list[str]]] = []
    for scope, own in scopes(queues).items():
        policy, ready = tables.policies.get(scope), _ready(tables, own, now)
        if policy is None and not any(ready):
            plain += [one for tasks in ready.values() for one in tasks]
        else:
            ruled.append((policy or QueuePolicy(queue=scope), own))
    chosen: list[QueuedTask] = []
    for rules, own in rotated(ruled, to_micros(now)):
        chosen += _of_scope(tables, rules, own, room - len(chosen), now)
    plain.sort(key=lambda one: (one.task.priority, one.ready_at, one.order))
    return chosen + plain[: room - len(chosen)]


def _of_scope(
    tables: Tables, policy: QueuePolicy, queues: Collection[str], room: int, now: datetime
) -> list[QueuedTask]:
    scope, ready = policy.queue, _ready(tables, queues, now)
    fair_keys = [
        FairKey(
            key=key,
            pass_value=tables.passes.get((scope, key), 0),
            ready=len(tasks),
            in_flight=_in_flight(tables, scope, now, key),
            started=_started(tables, policy, now, key),
        )
        for key, tasks in ready.items()
    ]
    shares = allocate(
        policy,
        fair_keys,
        room,
        global_pass=tables.global_passes.get(scope, 0),
        in_flight=_in_flight(tables, scope, now),
        started=_started(tables, policy, now),
    )
    tables.global_passes[scope] = shares.global_pass
    _forget_fair_keys(tables, scope, shares.global_pass)
    chosen: list[QueuedTask] = []
    for fair_key in fair_keys:
        count = shares.given.get(fair_key.key, 0)
        if count:
            tables.passes[scope, fair_key.key] = fair_key.pass_value
            tasks = sorted(ready[fair_key.key], key=lambda one: _order(policy, one))
            chosen += tasks[:count]
            _remember_starts(tables, policy, fair_key.key, count, now)
    return chosen


def _forget_fair_keys(tables: Tables, scope: str, global_pass: int) -> None:
    """Delete fair keys without tasks whose pass the other fair keys have reached."""
    living = {(scope_of(one.task.queue), one.task.key) for one in tables.tasks.values()}
    for fair_key, pass_value in list(tables.passes.items()):
        if fair_key[0] == scope and pass_value <= global_pass and fair_key not in living:
            del tables.passes[fair_key]


def _remember_starts(
    tables: Tables, policy: QueuePolicy, key: str, count: int, now: datetime
) -> None:
    seconds = window(policy)
    if seconds:
        since = now - timedelta(seconds=seconds)
        kept = [start for start in tables.starts.get(policy.queue, []) if start[0] > since]
        tables.starts[policy.queue] = kept + [(now, key)] * count


def _order(policy: QueuePolicy, queued: QueuedTask) -> tuple[float, int, int]:
    return (*urgency(policy, queued.task.priority, to_micros(queued.ready_at)), queued.order)


def _ready(tables: Tables, queues: Collection[str], now: datetime) -> dict[str, list[QueuedTask]]:
    found: dict[str, list[QueuedTask]] = {}
    for queued in tables.tasks.values():
        if queued.task.queue in queues and queued.available(now):
            found.setdefault(queued.task.key, []).append(queued)
    return found


def _in_flight(tables: Tables, scope: str, now: datetime, key: str | None = None) -> int:
    return sum(
        scope_of(queued.task.queue) == scope
        and queued.held(now)
        and (key is None or queued.task.key == key)
        for queued in tables.tasks.values()
    )


def _started(tables: Tables, policy: QueuePolicy, now: datetime, key: str | None = None) -> int:
    rate = policy.rate if key is None else policy.key_rate
    if rate is None:
        return 0
    since = now - timedelta(seconds=rate.per)
    starts = tables.starts.get(policy.queue, [])
    return sum(at > since and (key is None or key == of) for at, of in starts)


# -- seeing ---------------------------------------------------------------------------------------


def stats_of(tables: Tables, scope: str, now: datetime) -> QueueStats:
    """The exact statistics of a queue: a full scan."""
    policy = tables.policies.get(scope)
    rules = policy or QueuePolicy(queue=scope)
    own = [one for one in tables.tasks.values() if scope_of(one.task.queue) == scope]
    ready = [one for one in own if one.available(now)]
    in_flight = _in_flight(tables, scope, now)
    keys = sorted({one.task.key for one in own if one.task.key})
    return QueueStats(
        queue=scope,
        ready=len(ready),
        delayed=sum(not one.held(now) and one.ready_at > now for one in own),
        in_flight=in_flight,
        dead=sum(scope_of(dead.task.queue) == scope for dead in tables.dead.values()),
        oldest=min((one.ready_at for one in ready), default=None),
        policy=policy,
        blocked_by=blocked_by(rules, in_flight=in_flight, started=_started(tables, rules, now)),
        keys=tuple(
            KeyStats(
                key=key,
                ready=sum(one.task.key == key for one in ready),
                in_flight=_in_flight(tables, scope, now, key),
                blocked_by=key_blocked_by(
                    rules,
                    key,
                    in_flight=_in_flight(tables, scope, now, key),
                    started=_started(tables, rules, now, key),
                ),
            )
            for key in keys[:KEYS_SHOWN]
        ),
        at_least=("keys",) if len(keys) > KEYS_SHOWN else (),
    )


def next_ready_at(tables: Tables, queues: Sequence[str], now: datetime) -> datetime | None:
    """When something may be ready by time alone."""
    times = []
    for one in tables.tasks.values():
        if one.task.queue in queues:
            if not one.held(now):
                times.append(one.ready_at)
            elif one.claimed_until is not None:
                times.append(max(one.claimed_until, one.ready_at))
    for scope in scopes(queues):
        policy = tables.policies.get(scope)
        for rate in (policy.rate, policy.key_rate) if policy is not None else ():
            if rate is not None:
                times += [
                    at + timedelta(seconds=rate.per) for at, _ in tables.starts.get(scope, [])
                ]
    return min((at for at in times if at > now), default=None)
