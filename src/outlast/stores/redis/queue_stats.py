"""Statistics of queues, and when their next task is ready. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from outlast.model.queue_policy import (
    scopes,
)
from outlast.model.stats import (
    KEYS_SHOWN,
    KeyStats,
    QueueStats,
    blocked_by,
    key_blocked_by,
)
from outlast.model.times import from_micros
from outlast.stores.redis.fair_queue_scan import read_scope_state
from outlast.stores.redis.keys import TASKS
from outlast.stores.redis.packing import lease, pack
from outlast.stores.redis.session import Call, Server


async def load_stats(
    server: Server, scope: str, counted: int, *, timeout: float | None
) -> QueueStats:
    """The state of a queue with all its steps. Counts come from sorted sets; what would need a read of each task is
    left out beyond a limit."""
    request = pack({"scope": scope, "counted": counted})
    calls = [
        Call("queue_stats", part, TASKS, [request]) for part in range(server.layout.partitions)
    ]
    totals = [0, 0, 0, 0]
    times: list[int] = []
    keys: dict[str, list[int]] = {}
    waiting_left = held_left = False
    for _, *counts, oldest, flat, waiting, held in await server.each(
        calls, timeout=timeout, writes=False
    ):
        totals = [total + int(count) for total, count in zip(totals, counts, strict=True)]
        times += [int(oldest)] if oldest else []
        waiting_left |= waiting == b"1"
        held_left |= held == b"1"
        for key, ready, in_flight in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            own = keys.setdefault(key.decode(), [0, 0])
            own[0] += int(ready)
            own[1] += int(in_flight)
    shown = sorted(keys)[:KEYS_SHOWN]
    state = await read_scope_state(server, scope, shown, timeout=timeout)
    ready, delayed, in_flight, dead = totals
    not_all: tuple[str, ...] = ("ready", "delayed", "oldest") if waiting_left else ()
    if waiting_left or held_left or len(keys) > KEYS_SHOWN:
        not_all += ("keys",)
    of_key = (*(("ready",) if waiting_left else ()), *(("in_flight",) if held_left else ()))
    return QueueStats(
        queue=scope,
        ready=ready,
        delayed=delayed,
        in_flight=in_flight,
        dead=dead,
        oldest=from_micros(min(times)) if times else None,
        policy=state.rules,
        blocked_by=blocked_by(state.policy, in_flight=state.in_flight, started=state.started),
        keys=tuple(
            KeyStats(
                key=fair_key.key,
                ready=keys[fair_key.key][0],
                in_flight=keys[fair_key.key][1],
                blocked_by=key_blocked_by(
                    state.policy,
                    fair_key.key,
                    in_flight=fair_key.in_flight,
                    started=fair_key.started,
                ),
                at_least=of_key,
            )
            for fair_key in state.fair_keys
        ),
        at_least=not_all,
    )


async def next_ready_at(
    server: Server, queues: Sequence[str], *, timeout: float | None
) -> datetime | None:
    """When a task of these queues may become ready by time alone."""
    request = pack(list(queues))
    calls = [
        Call("next_ready_at", part, TASKS, [request]) for part in range(server.layout.partitions)
    ]
    answers = await server.each(calls, timeout=timeout, writes=False)
    times = [int(at) for _, found in answers for at in found]
    for scope in scopes(queues):
        state = await read_scope_state(server, scope, [], timeout=timeout)
        if state.policy.rate is not None and state.first_start is not None:
            times.append(state.first_start + lease(state.policy.rate.per))
    return from_micros(min(times)) if times else None
