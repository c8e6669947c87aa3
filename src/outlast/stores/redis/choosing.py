"""Whose turn it is: the look at the partitions and the standing of the scope, put together for
`outlast.model.flow.allocate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from outlast.model.flow import Flow, allocate, line_room, stride, urgency
from outlast.stores.redis.keys import TASKS
from outlast.stores.redis.looking import Look, Place, Standing, View, look, standing
from outlast.stores.redis.packing import lease, pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.slots import carry_back

LOOKS = 50
"""How often to look again before what others do at the same time counts as too much."""


class Wish(NamedTuple):
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

    place: Place
    key: str = ""
    stride: int = 0


async def choose(
    server: Server, wish: Wish, scope: str, room: int, timeout: float | None
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
        if stands.flow.ageing is not None and not how.every and server.layout.partitions > 1:
            how = how._replace(every=True)
            continue
        is_stale = await _tell(server, wish, view, stands, timeout)
        usable = [line for line in stands.lines if line_room(stands.flow, line) > 0]
        enough = room + len(stands.lines) - len(usable)
        if view.has_more_lines and (is_stale or how.lines < enough):
            how = how._replace(lines=max(enough, 4 * how.lines))
            continue
        shares = allocate(
            stands.flow,
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
            Chosen(place, key, stride(stands.flow, key))
            for key, count in shares.given.items()
            for place in _most_urgent(stands.flow, view.lines[key].places)[:count]
        ]
    return []


def _most_urgent(flow: Flow, places: Sequence[Place]) -> list[Place]:
    return sorted(places, key=lambda one: (*urgency(flow, one.priority, one.ready), one.order))


async def _tell(
    server: Server, wish: Wish, view: View, stands: Standing, timeout: float | None
) -> bool:
    """Put together what the partitions know of lines and what the scope does. Partitions that do not
    know how far a line is, or that it may not begin anything for a while, are told; whether any of
    them has shown lines in a wrong order."""
    turns: dict[int, list[Any]] = {}
    sleeps: dict[int, list[Any]] = {}
    rate = stands.flow.key_rate
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
        calls.append(Call("begin", part, ["token", *TASKS], [pack(wish.packed() | told)]))
    await server.each(calls, timeout=timeout)
    return bool(turns)
