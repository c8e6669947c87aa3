"""Queue policies and statistics. A policy is stored in the home partition of its scope; each partition records that
home."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from outlast.model.queue_policy import (
    KEPT_CHANGES,
    ExpectedPolicy,
    PolicyChange,
    QueuePolicy,
    Rate,
    decode_policy,
    encode_policy,
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
from outlast.stores.redis.concurrency_slots import new_ticket
from outlast.stores.redis.fair_queue_scan import read_scope_state
from outlast.stores.redis.keys import POLICY, TASKS, encoded
from outlast.stores.redis.packing import blob, lease, pack
from outlast.stores.redis.session import Call, Server

_encode = msgspec.json.Encoder(order="sorted").encode


class _Change(Struct):
    by: str
    policy: QueuePolicy | None


_change = msgspec.json.Decoder(_Change)


async def write_policy(
    server: Server,
    scope: str,
    policy: QueuePolicy | None,
    declared: QueuePolicy | None,
    seen: ExpectedPolicy | None,
    *,
    by: str,
    timeout: float | None,
) -> bool:
    """Store a policy with an audit line: see `Queue._write_policy`.

    Each partition records the home first. From then on it leases no task without a slot; tasks in flight are
    counted in the same step in which the policy takes effect."""
    home = server.layout.part_for(scope)
    write: dict[str, Any] = {
        "limits": blob(pack(_limits(policy))),
        "change": blob(_encode(_Change(by, policy))),
        "slots": [],
        "kept": KEPT_CHANGES,
        "has_seen": seen is not None,
    }
    if seen is not None and seen.policy is not None:
        write["seen"] = blob(encode_policy(seen.policy))
    if policy is not None:
        write["rules"] = blob(encode_policy(policy))
    if declared is not None:
        said = encode_policy(declared)
        write["declared"] = blob(said)
        key = server.layout.key(home, "policy:declared")
        command = (b"HGET", key, scope.encode())
        if await server.commands([(home, command)], timeout=timeout, writes=False) == [said]:
            return True
    mark = {"home": home, "nonce": new_ticket()}
    others = [part for part in range(server.layout.partitions) if part != home]
    calls = [
        Call("write_policy", part, POLICY, [pack({"scope": scope, "mark": mark})])
        for part in others
    ]
    for _, found in await server.each(calls, timeout=timeout):
        write["slots"] += [[blob(name), blob(slot)] for name, slot in found]
    names = [*POLICY, f"policy:audit:{encoded(scope)}"]
    packed = pack({"scope": scope, "mark": mark, "write": write})
    answer = await server.call(Call("write_policy", home, names, [packed]), timeout=timeout)
    return bool(answer[0] != b"changed")


def _limits(policy: QueuePolicy | None) -> dict[str, Any]:
    """The fields that scripts read. None is no limit."""
    if policy is None:
        return {}
    limits: dict[str, Any] = {
        "concurrency": policy.concurrency,
        "key_concurrency": policy.key_concurrency,
        "rate": _rate(policy.rate),
        "key_rate": _rate(policy.key_rate),
        "paused": policy.paused or None,
        "ages": True if policy.ageing is not None else None,
    }
    return {name: value for name, value in limits.items() if value is not None}


def _rate(rate: Rate | None) -> dict[str, int] | None:
    return None if rate is None else {"limit": rate.limit, "per": lease(rate.per)}


async def load_policies(server: Server, *, timeout: float | None) -> list[QueuePolicy]:
    """The policies of all queues, by name."""
    layout = server.layout
    commands = [
        (part, (b"HVALS", layout.key(part, "policy:rules"))) for part in range(layout.partitions)
    ]
    found = await server.commands(commands, timeout=timeout, writes=False)
    return sorted(
        (decode_policy(rules) for own in found for rules in own), key=lambda one: one.queue
    )


async def load_changes(
    server: Server, scope: str, limit: int, *, timeout: float | None
) -> list[PolicyChange]:
    """The changes of a policy, newest first."""
    part = server.layout.part_for(scope)
    key = server.layout.key(part, f"policy:audit:{encoded(scope)}")
    command = (b"LRANGE", key, b"0", b"%d" % (limit - 1))
    (lines,) = await server.commands([(part, command)], timeout=timeout, writes=False)
    changes = []
    for line in lines:
        at, _, body = line.partition(b" ")
        change = _change.decode(body)
        changes.append(
            PolicyChange(queue=scope, at=from_micros(int(at)), by=change.by, policy=change.policy)
        )
    return changes


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
                key=line.key,
                ready=keys[line.key][0],
                in_flight=keys[line.key][1],
                blocked_by=key_blocked_by(
                    state.policy, line.key, in_flight=line.in_flight, started=line.started
                ),
                at_least=of_key,
            )
            for line in state.lines
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
