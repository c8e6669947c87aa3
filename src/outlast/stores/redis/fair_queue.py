"""Taking tasks from queues with a policy or keys, over all partitions.

::

    scan: ready tasks, fair keys by pass ──▶ state of the scope ──▶ outlast.model.queue_policy.allocate
        each partition                       home partition                  │
                              leases ◀── slots, within the policy ◀──────────┘
                    partitions of the tasks      home partition

A scan reserves nothing. The script that gives slots enforces the policy, whatever was scanned; the script that leases
makes sure that a task is taken once. With a single partition the scan is one step, slots and leases another.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from outlast.errors import StoreFault, TryAgain
from outlast.model.queue_policy import (
    KEPT_CHANGES,
    ExpectedPolicy,
    PolicyChange,
    QueuePolicy,
    Rate,
    allocate,
    decode_policy,
    encode_policy,
    key_room,
    rotated,
    scope_of,
    scopes,
    stride,
    urgency,
)
from outlast.model.run_contents import Delivery
from outlast.model.times import from_micros
from outlast.stores.redis.concurrency_slots import (
    Return,
    carry_releases,
    check_orphans,
    new_ticket,
    release_orphans,
    release_slots,
)
from outlast.stores.redis.fair_queue_scan import (
    QueuePosition,
    ScanOptions,
    ScopeState,
    View,
    read_scope_state,
    scan_queues,
)
from outlast.stores.redis.keys import POLICY, TASKS, encoded
from outlast.stores.redis.packing import blob, lease, pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.unpacking import to_claim, to_state, to_task


async def take(
    server: Server, request: TakeRequest, room: int, *, at: int, timeout: float | None
) -> list[Delivery]:
    """Take up to `room` tasks: from queues with a policy or keys fairly and within the policy, from the others the
    most urgent. `at` rotates the queue that is served first."""
    if server.layout.partitions > 1:
        return await _take_partitioned(server, request, room, at, timeout)
    taken: list[Delivery] = []
    left = request
    while left.queues:
        plain, ruled = await _take_plain(server, left, room - len(taken), timeout)
        taken += plain
        for scope in rotated(ruled, at):
            if len(taken) < room:
                taken += await _take_scope(server, request, scope, room - len(taken), [], timeout)
        if not ruled or len(taken) == room:
            break
        rest = [queue for queue in left.queues if scope_of(queue) not in ruled]
        left = left._replace(queues=rest)
    return taken


async def _take_plain(
    server: Server, request: TakeRequest, room: int, timeout: float | None
) -> tuple[list[Delivery], list[str]]:
    """Tasks in one step, or else the scopes that have a policy or keys."""
    taken: list[Delivery] = []
    while True:
        packed = request.packed() | {"limit": room - len(taken)}
        call = Call("take_plain", 0, ["token", *TASKS], [pack(packed)])
        answer = await server.call(call, timeout=timeout)
        if answer[0] == b"policy":
            return taken, [scope.decode() for scope in answer[1]]
        taken += [_delivery(server, one) for one in answer[1]]
        if answer[2] != b"1":
            return taken, []


async def _take_partitioned(
    server: Server, request: TakeRequest, room: int, at: int, timeout: float | None
) -> list[Delivery]:
    """The same over several partitions, where only a scan tells which scopes have a policy or keys."""
    taken: list[Delivery] = []
    for _ in range(MAX_SCANS):
        plain: list[Chosen] = []
        for scope in rotated(list(scopes(request.queues)), at):
            if len(taken) < room:
                taken += await _take_scope(
                    server, request, scope, room - len(taken), plain, timeout
                )
        left = room - len(taken)
        chosen = sorted(plain)[:left]
        got = await _start(server, request, "", chosen, timeout)
        taken += got
        if len(got) == len(chosen):
            break
    return taken


async def _take_scope(
    server: Server,
    request: TakeRequest,
    scope: str,
    room: int,
    plain: list[Chosen],
    timeout: float | None,
) -> list[Delivery]:
    """Tasks of one scope. Without policy and keys its tasks are added to `plain`."""
    own = request._replace(queues=[queue for queue in request.queues if scope_of(queue) == scope])
    taken: list[Delivery] = []
    for _ in range(MAX_SCANS):
        left = room - len(taken)
        chosen = await choose(server, own, scope, left, timeout)
        if chosen and not chosen[0].stride:
            plain += chosen
            break
        if not chosen and await check_orphans(server, scope, timeout=timeout):
            continue
        got = await _start(server, own, scope, chosen, timeout)
        taken += got
        if not chosen or len(taken) == room or len(got) == len(chosen) < left:
            break
    return taken


async def _start(
    server: Server,
    request: TakeRequest,
    scope: str,
    chosen: Sequence[Chosen],
    timeout: float | None,
) -> list[Delivery]:
    """Give slots to tasks and lease them. Without a scope they need no slot."""
    if not chosen:
        return []
    names = [blob(one.place.name) for one in chosen]
    if not scope:
        leases = [(one, [name]) for one, name in zip(chosen, names, strict=True)]
        return _deliveries(server, await _lease(server, request, leases, [], timeout))
    is_one = server.layout.partitions == 1
    home, ticket = server.layout.part_for(scope), new_ticket()
    grants = [
        [one.key, name, one.stride, f"{ticket}:{n}"]
        for n, (one, name) in enumerate(zip(chosen, names, strict=True))
    ]
    packed = request.packed() | {"scope": scope, "grants": grants, "at_once": is_one}
    call = Call("lease_tasks", home, ["token", *POLICY], [pack(packed)])
    _, outcomes, moved = await server.call(call, timeout=timeout)
    stuck = [
        Return(home, outcome[1].decode(), one.place.name)
        for one, outcome in zip(chosen, outcomes, strict=True)
        if outcome[0] == b"stuck"
    ]
    if stuck:
        await release_orphans(server, stuck, timeout=timeout)
    if is_one:
        return _deliveries(server, outcomes)
    leases = []
    slots: dict[int, Return] = {}
    rated: set[int] = set()
    for n, (one, outcome) in enumerate(zip(chosen, outcomes, strict=True)):
        if outcome[0] == b"granted":
            slot = [f"{ticket}:{n}", home, outcome[1].decode()] if outcome[1] else []
            if slot:
                slots[len(leases)] = Return(home, f"{ticket}:{n}", one.place.name)
            if outcome[2] == b"1":
                rated.add(len(leases))
            leases.append((one, [names[n], *slot]))
    turns = [
        [queue, key.decode(), pass_value.decode()]
        for key, pass_value in moved
        for queue in request.queues
    ]
    outcomes = await _lease(server, request, leases, turns, timeout)
    reports = []
    for n, outcome in enumerate(outcomes):
        if outcome[0] != b"taken" and n in slots:
            reports.append(slots[n]._replace(undo=outcome[0] != b"buried"))
        elif n in rated:
            reports.append(slots[n]._replace(began=int(outcome[1][2])))
    if reports:
        # The leases hold: a report that fails costs other takers one lease period at most.
        with suppress(TryAgain, StoreFault):
            await release_slots(server, reports, timeout=timeout)
    return _deliveries(server, outcomes)


async def _lease(
    server: Server,
    request: TakeRequest,
    leases: Sequence[tuple[Chosen, list[Any]]],
    turns: Sequence[Any],
    timeout: float | None,
) -> list[Any]:
    """Lease tasks in their partitions; the outcome of each."""
    by_part: dict[int, list[int]] = {}
    for n, (one, _) in enumerate(leases):
        by_part.setdefault(one.place.part, []).append(n)
    calls = []
    for part, numbers in by_part.items():
        own = {"leases": [leases[n][1] for n in numbers], "turns": turns}
        calls.append(Call("lease_tasks", part, ["token", *TASKS], [pack(request.packed() | own)]))
    outcomes: list[Any] = [None] * len(leases)
    answers = await server.each(calls, timeout=timeout)
    for numbers, (_, found, _) in zip(by_part.values(), answers, strict=True):
        for n, outcome in zip(numbers, found, strict=True):
            outcomes[n] = outcome
    return outcomes


def _deliveries(server: Server, outcomes: Sequence[Any]) -> list[Delivery]:
    return [_delivery(server, rest) for what, *rest in outcomes if what == b"taken"]


def _delivery(server: Server, taken: Sequence[Any]) -> Delivery:
    claim = to_claim(taken[0])
    server.saw_token(claim.token)
    return Delivery(to_task(to_state(taken[1]), taken[2]), claim)


MAX_SCANS = 50
"""Scans before a take gives up under contention."""


class TakeRequest(NamedTuple):
    """The arguments of a take."""

    queues: Sequence[str]
    owner: str
    visibility: float
    attempts: int

    def packed(self) -> dict[str, Any]:
        """As the scripts read it."""
        return {
            "queues": list(self.queues),
            "owner": self.owner,
            "lease": lease(self.visibility),
            "attempts": self.attempts,
        }


class Chosen(NamedTuple):
    """A chosen task; `stride` is how far it advances the pass of its key, 0 without policy and keys."""

    place: QueuePosition
    key: str = ""
    stride: int = 0


async def choose(
    server: Server, request: TakeRequest, scope: str, room: int, timeout: float | None
) -> list[Chosen]:
    """The next tasks of a scope."""
    how = ScanOptions(room, fair_keys=room)
    for _ in range(MAX_SCANS):
        view, state = await scan_queues(server, scope, request.queues, how, timeout=timeout)
        if view.is_plain:
            return sorted(Chosen(place) for place in view.fair_keys[""].places)[:room]
        if view.returning:
            await carry_releases(server, view.returning, timeout=timeout)
            state = None
        if state is None:
            state = await read_scope_state(server, scope, list(view.fair_keys), timeout=timeout)
        if state.policy.ageing is not None and not how.every and server.layout.partitions > 1:
            how = how._replace(every=True)
            continue
        is_stale = await _update_partitions(server, request, view, state, timeout)
        usable = [fair_key for fair_key in state.fair_keys if key_room(state.policy, fair_key) > 0]
        enough = room + len(state.fair_keys) - len(usable)
        if view.has_more_fair_keys and (is_stale or how.fair_keys < enough):
            how = how._replace(fair_keys=max(enough, 4 * how.fair_keys))
            continue
        shares = allocate(
            state.policy,
            usable,
            room,
            global_pass=state.global_pass,
            in_flight=state.in_flight,
            started=state.started,
        )
        if shares.short:
            most = max(len(view.fair_keys[key].places) for key in shares.short)
            how = how._replace(few=4 * most)
            continue
        return [
            Chosen(place, key, stride(state.policy, key))
            for key, count in shares.given.items()
            for place in _most_urgent(state.policy, view.fair_keys[key].places)[:count]
        ]
    return []


def _most_urgent(policy: QueuePolicy, places: Sequence[QueuePosition]) -> list[QueuePosition]:
    return sorted(places, key=lambda one: (*urgency(policy, one.priority, one.ready), one.order))


async def _update_partitions(
    server: Server, request: TakeRequest, view: View, state: ScopeState, timeout: float | None
) -> bool:
    """Merge what the partitions and the scope know about fair keys. Partitions with an outdated pass, or without
    knowledge of a limit, are updated; whether one has returned keys in a wrong order."""
    turns: dict[int, list[Any]] = {}
    sleeps: dict[int, list[Any]] = {}
    rate = state.policy.key_rate
    for found, fair_key, first in zip(
        view.fair_keys.values(), state.fair_keys, state.first_starts, strict=True
    ):
        fair_key.ready, fair_key.more = len(found.places), found.has_more
        for (part, queue), turn in found.turns.items():
            if turn < fair_key.pass_value:
                turns.setdefault(part, []).append([queue, fair_key.key, str(fair_key.pass_value)])
            if rate is not None and first is not None and fair_key.started >= rate.limit:
                wake = str(first + lease(rate.per))
                sleeps.setdefault(part, []).append([queue, fair_key.key, wake])
        fair_key.pass_value = max(fair_key.pass_value, *found.turns.values(), 0)
    calls = []
    for part in {**turns, **sleeps}:
        updates = {"turns": turns.get(part, []), "sleeps": sleeps.get(part, [])}
        calls.append(
            Call("lease_tasks", part, ["token", *TASKS], [pack(request.packed() | updates)])
        )
    await server.each(calls, timeout=timeout)
    return bool(turns)


class _Change(Struct):
    by: str
    policy: QueuePolicy | None


_encode = msgspec.json.Encoder(order="sorted").encode
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
