"""Tasks as the store hands them out: available tasks, and claims on single tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from outlast.model.claim import Claim
from outlast.model.run_contents import Task
from outlast.stores.redis.concurrency_slots import (
    PROVISIONAL_LEASE_S,
    Return,
    force,
    keep,
    new_ticket,
    release_slots,
    to_wanted,
)
from outlast.stores.redis.delete import finish_all
from outlast.stores.redis.keys import TASKS, framed, of_run
from outlast.stores.redis.packing import lease, pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.session_store import SessionStore
from outlast.stores.redis.unpacking import to_claim, to_state, to_task

LOOK = ("task:data", "task:state", "task:free", "task:keyed", "task:held")


class RedisTasks(SessionStore):
    """Claims on single tasks, and what is available."""

    async def claim_task(
        self,
        run_id: str,
        task_id: str,
        owner: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Claim | None:
        server = await self._session.server()
        return await claim_task(server, run_id, task_id, owner, ttl, timeout=timeout)

    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        server = await self._session.server()
        await finish_all(server, timeout=timeout)
        found = await find_available(server, queue, limit, timeout=timeout)
        return [one.task for one in found]


class Available(NamedTuple):
    """An available task. Sorts by priority and time."""

    place: bytes
    part: int
    task: Task


def task_field(claim: Claim) -> bytes:
    """The name of a claim's task in the scripts."""
    return framed(claim.queue or "") + framed(claim.run_id) + (claim.task_id or "").encode()


async def find_available(
    server: Server, queue: str | None, limit: int, *, timeout: float | None
) -> list[Available]:
    """Due, unclaimed tasks, by priority and time."""
    found = [
        Available(place, part, to_task(to_state(state), body))
        for part, answer in enumerate(await _look(server, queue, limit, timeout, counts=False))
        for place, state, body in answer[1]
    ]
    return sorted(found, key=lambda one: one[:2])[:limit]


async def count_available(server: Server, queue: str, *, timeout: float | None) -> int:
    """How many tasks are due and unclaimed."""
    answers = await _look(server, queue, 0, timeout, counts=True)
    return sum(int(answer[1]) for answer in answers)


async def _look(
    server: Server, queue: str | None, limit: int, timeout: float | None, *, counts: bool
) -> list[Any]:
    request: dict[str, Any] = {"limit": limit, "counts": counts}
    if queue is not None:
        request["queue"] = queue
    calls = [
        Call("find_available_tasks", part, LOOK, [pack(request)])
        for part in range(server.layout.partitions)
    ]
    return await server.each(calls, timeout=timeout, writes=False)


async def claim_task(
    server: Server,
    run_id: str,
    task_id: str,
    owner: str,
    ttl: float | None,
    *,
    timeout: float | None,
) -> Claim | None:
    """Claim one task of a run, if it is available."""
    ticket = new_ticket()
    request: dict[str, Any] = {"run": run_id, "id": task_id, "owner": owner, "ticket": ticket}
    if ttl is not None:
        request["lease"] = lease(ttl)
    names = ["token", of_run(run_id, "tasks"), *TASKS]
    slot: Return | None = None
    while True:
        call = Call("claim_task", server.layout.part_of(run_id), names, [pack(request)])
        answer = await server.call(call, timeout=timeout)
        if answer[0] != b"done" and slot is not None:
            await release_slots(server, [slot], timeout=timeout)
            slot = None
        if answer[0] == b"none":
            return None
        if answer[0] == b"done":
            break
        # Its queue has rules: it counts, wherever that is, before it is claimed.
        wanted = to_wanted(answer[1])
        ends = await force(server, wanted, ttl or PROVISIONAL_LEASE_S, timeout=timeout)
        if ends is None:
            return None
        request["lease"] = lease(ttl or PROVISIONAL_LEASE_S)
        slot = Return(wanted.home, ticket, msgspec.msgpack.decode(wanted.name, type=str).encode())
        request |= {"name": wanted.name, "slot_ends": ends}
    claim = to_claim(answer[1])
    server.saw_token(claim.token)
    if slot is not None and ttl is None:
        return await keep(server, claim, timeout=timeout)
    return claim


async def find_lost(
    server: Server, claims: Sequence[Claim], *, timeout: float | None
) -> Claim | None:
    """The first of these claims on tasks that is lost."""
    layout = server.layout
    commands = []
    for claim in claims:
        part = layout.part_of_task(claim.queue or "", claim.run_id)
        commands.append((part, (b"HGET", layout.key(part, "task:state"), task_field(claim))))
    found = await server.commands(commands, timeout=timeout, writes=False)
    for claim, packed in zip(claims, found, strict=True):
        state = {} if packed is None else to_state(packed)
        if state.get("owner") is None or state["token"] != str(claim.token):
            return claim
    return None
