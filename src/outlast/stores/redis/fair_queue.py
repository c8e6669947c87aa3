"""Which tasks are handed out next where queues have rules or lines, over all partitions.

::

    look: what is ready, lines by turn ──▶ how the scope stands ──▶ outlast.model.queue_policy.allocate
        every partition                       the scope's partition              │
                                   leases ◀── slots, the rules being kept ◀──────┘
                         the tasks' partitions       the scope's partition

Looking gives no right. The script that gives slots keeps the rules, whoever has looked when; the one
that leases sees to it that a task is had once. In a store of one partition the look is one step, and
slots and leases are another.

Whose turn it is: the look at the partitions and the standing of the scope, put together for
`outlast.model.queue_policy.allocate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from outlast.errors import StoreFault, TryAgain
from outlast.model.queue_policy import (
    QueuePolicy,
    allocate,
    line_room,
    rotated,
    scope_of,
    scopes,
    stride,
    urgency,
)
from outlast.model.task import Delivery
from outlast.stores.redis.concurrency_slots import (
    Return,
    carry_back,
    drop_dead,
    give_back,
    new_ticket,
    tidy_slots,
)
from outlast.stores.redis.fair_queue_scan import Look, QueuePosition, Standing, View, look, standing
from outlast.stores.redis.keys import POLICY, TASKS
from outlast.stores.redis.packing import blob, lease, pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.unpacking import to_claim, to_state, to_task


async def take(
    server: Server, wish: TakeRequest, room: int, *, at: int, timeout: float | None
) -> list[Delivery]:
    """Hand out up to `room` tasks: of queues with rules or lines by turns and within their rules, of the
    others the most urgent. `at` tells with which of several queues to begin."""
    if server.layout.partitions > 1:
        return await _take_apart(server, wish, room, at, timeout)
    taken: list[Delivery] = []
    left = wish
    while left.queues:
        plain, ruled = await _take_plain(server, left, room - len(taken), timeout)
        taken += plain
        for scope in rotated(ruled, at):
            if len(taken) < room:
                taken += await _take_scope(server, wish, scope, room - len(taken), [], timeout)
        if not ruled or len(taken) == room:
            break
        rest = [queue for queue in left.queues if scope_of(queue) not in ruled]
        left = left._replace(queues=rest)
    return taken


async def _take_plain(
    server: Server, wish: TakeRequest, room: int, timeout: float | None
) -> tuple[list[Delivery], list[str]]:
    """Tasks in one step, or else the scopes that have rules or lines."""
    taken: list[Delivery] = []
    while True:
        packed = wish.packed() | {"limit": room - len(taken)}
        call = Call("take_plain", 0, ["token", *TASKS], [pack(packed)])
        answer = await server.call(call, timeout=timeout)
        if answer[0] == b"policy":
            return taken, [scope.decode() for scope in answer[1]]
        taken += [_delivery(server, one) for one in answer[1]]
        if answer[2] != b"1":
            return taken, []


async def _take_apart(
    server: Server, wish: TakeRequest, room: int, at: int, timeout: float | None
) -> list[Delivery]:
    """The same over several partitions, where it takes a look to know."""
    taken: list[Delivery] = []
    for _ in range(LOOKS):
        plain: list[Chosen] = []
        for scope in rotated(list(scopes(wish.queues)), at):
            if len(taken) < room:
                taken += await _take_scope(server, wish, scope, room - len(taken), plain, timeout)
        left = room - len(taken)
        chosen = sorted(plain)[:left]
        got = await _begin(server, wish, "", chosen, timeout)
        taken += got
        if len(got) == len(chosen):
            break
    return taken


async def _take_scope(
    server: Server,
    wish: TakeRequest,
    scope: str,
    room: int,
    plain: list[Chosen],
    timeout: float | None,
) -> list[Delivery]:
    """Tasks of one scope. If it has neither rules nor lines, what it has is added to `plain`."""
    own = wish._replace(queues=[queue for queue in wish.queues if scope_of(queue) == scope])
    taken: list[Delivery] = []
    for _ in range(LOOKS):
        left = room - len(taken)
        chosen = await choose(server, own, scope, left, timeout)
        if chosen and not chosen[0].stride:
            plain += chosen
            break
        if not chosen and await tidy_slots(server, scope, timeout=timeout):
            continue
        got = await _begin(server, own, scope, chosen, timeout)
        taken += got
        if not chosen or len(taken) == room or len(got) == len(chosen) < left:
            break
    return taken


# -- beginning ------------------------------------------------------------------------------------


async def _begin(
    server: Server, wish: TakeRequest, scope: str, chosen: Sequence[Chosen], timeout: float | None
) -> list[Delivery]:
    """Give slots to tasks and lease them. Without a scope nobody counts them."""
    if not chosen:
        return []
    names = [blob(one.place.name) for one in chosen]
    if not scope:
        leases = [(one, [name]) for one, name in zip(chosen, names, strict=True)]
        return _deliveries(server, await _lease(server, wish, leases, [], timeout))
    is_one = server.layout.partitions == 1
    home, ticket = server.layout.part_for(scope), new_ticket()
    grants = [
        [one.key, name, one.stride, f"{ticket}:{n}"]
        for n, (one, name) in enumerate(zip(chosen, names, strict=True))
    ]
    packed = wish.packed() | {"scope": scope, "grants": grants, "at_once": is_one}
    call = Call("lease_tasks", home, ["token", *POLICY], [pack(packed)])
    _, outcomes, moved = await server.call(call, timeout=timeout)
    stuck = [
        Return(home, outcome[1].decode(), one.place.name)
        for one, outcome in zip(chosen, outcomes, strict=True)
        if outcome[0] == b"stuck"
    ]
    if stuck:
        await drop_dead(server, stuck, timeout=timeout)
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
        [queue, key.decode(), passed.decode()] for key, passed in moved for queue in wish.queues
    ]
    outcomes = await _lease(server, wish, leases, turns, timeout)
    told = []
    for n, outcome in enumerate(outcomes):
        if outcome[0] != b"taken" and n in slots:
            told.append(slots[n]._replace(undo=outcome[0] != b"buried"))
        elif n in rated:
            told.append(slots[n]._replace(began=int(outcome[1][2])))
    if told:
        # What was taken is taken: what cannot be told now costs others a lease at most.
        with suppress(TryAgain, StoreFault):
            await give_back(server, told, timeout=timeout)
    return _deliveries(server, outcomes)


async def _lease(
    server: Server,
    wish: TakeRequest,
    leases: Sequence[tuple[Chosen, list[Any]]],
    turns: Sequence[Any],
    timeout: float | None,
) -> list[Any]:
    """Lease tasks in their partitions; what became of each."""
    by_part: dict[int, list[int]] = {}
    for n, (one, _) in enumerate(leases):
        by_part.setdefault(one.place.part, []).append(n)
    calls = []
    for part, numbers in by_part.items():
        own = {"leases": [leases[n][1] for n in numbers], "turns": turns}
        calls.append(Call("lease_tasks", part, ["token", *TASKS], [pack(wish.packed() | own)]))
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


LOOKS = 50
"""How often to look again before what others do at the same time counts as too much."""


class TakeRequest(NamedTuple):
    """What a taker wants."""

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
    """A task whose turn it is; `stride` is how far it moves its line on, 0 where nobody counts."""

    place: QueuePosition
    key: str = ""
    stride: int = 0


async def choose(
    server: Server, wish: TakeRequest, scope: str, room: int, timeout: float | None
) -> list[Chosen]:
    """The tasks whose turn it is."""
    how = Look(room, lines=room)
    for _ in range(LOOKS):
        view, stands = await look(server, scope, wish.queues, how, timeout=timeout)
        if view.is_plain:
            return sorted(Chosen(place) for place in view.lines[""].places)[:room]
        if view.returning:
            await carry_back(server, view.returning, timeout=timeout)
            stands = None
        if stands is None:
            stands = await standing(server, scope, list(view.lines), timeout=timeout)
        if stands.policy.ageing is not None and not how.every and server.layout.partitions > 1:
            how = how._replace(every=True)
            continue
        is_stale = await _tell(server, wish, view, stands, timeout)
        usable = [line for line in stands.lines if line_room(stands.policy, line) > 0]
        enough = room + len(stands.lines) - len(usable)
        if view.has_more_lines and (is_stale or how.lines < enough):
            how = how._replace(lines=max(enough, 4 * how.lines))
            continue
        shares = allocate(
            stands.policy,
            usable,
            room,
            present=stands.present,
            in_flight=stands.in_flight,
            started=stands.started,
        )
        if shares.short:
            most = max(len(view.lines[key].places) for key in shares.short)
            how = how._replace(few=4 * most)
            continue
        return [
            Chosen(place, key, stride(stands.policy, key))
            for key, count in shares.given.items()
            for place in _most_urgent(stands.policy, view.lines[key].places)[:count]
        ]
    return []


def _most_urgent(policy: QueuePolicy, places: Sequence[QueuePosition]) -> list[QueuePosition]:
    return sorted(places, key=lambda one: (*urgency(policy, one.priority, one.ready), one.order))


async def _tell(
    server: Server, wish: TakeRequest, view: View, stands: Standing, timeout: float | None
) -> bool:
    """Put together what the partitions know of lines and what the scope does. Partitions that do not
    know how far a line is, or that it may not begin anything for a while, are told; whether any of
    them has shown lines in a wrong order."""
    turns: dict[int, list[Any]] = {}
    sleeps: dict[int, list[Any]] = {}
    rate = stands.policy.key_rate
    for found, line, first in zip(
        view.lines.values(), stands.lines, stands.first_starts, strict=True
    ):
        line.ready, line.more = len(found.places), found.has_more
        for (part, queue), turn in found.turns.items():
            if turn < line.passed:
                turns.setdefault(part, []).append([queue, line.key, str(line.passed)])
            if rate is not None and first is not None and line.started >= rate.limit:
                wake = str(first + lease(rate.per))
                sleeps.setdefault(part, []).append([queue, line.key, wake])
        line.passed = max(line.passed, *found.turns.values(), 0)
    calls = []
    for part in {**turns, **sleeps}:
        told = {"turns": turns.get(part, []), "sleeps": sleeps.get(part, [])}
        calls.append(Call("lease_tasks", part, ["token", *TASKS], [pack(wish.packed() | told)]))
    await server.each(calls, timeout=timeout)
    return bool(turns)
