"""Concurrency slots of queues with a policy, counted in the home partition of the scope.

If a task and its slot are in one partition, one script handles both. Otherwise a slot is taken or extended
before its task is leased or renewed, and released after: the script that ends a lease records the release in its
partition (`slot:returns`), and its caller carries it to the home partition. After a crash the next take does,
and the slot ends with the lease at the latest. So there may be a slot without a task for a while, and never a
task without its slot.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from outlast.errors import StoreFault, TryAgain
from outlast.model.claim import Claim
from outlast.model.times import to_micros
from outlast.stores.redis.keys import POLICY, TASKS, of_run
from outlast.stores.redis.packing import blob, lease, pack, pack_claim
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.unpacking import pairs, to_state

MAX_CLOCK_DIFFERENCE_US = 1_000_000
"""Microseconds: an upper bound for the difference of two nodes' clocks."""
TIDY_SECONDS = 10.0
PROVISIONAL_LEASE_S = 60.0
"""Seconds: the end of a slot without expiry until its task is leased."""


class SlotRequest(Struct):
    """A slot that a script needs in another partition."""

    home: int
    name: Raw
    slot: Raw


to_wanted = msgspec.msgpack.Decoder(SlotRequest).decode


def new_ticket() -> str:
    """A unique name of one lease."""
    return os.urandom(12).hex()


async def extend(
    server: Server, wanted: Sequence[SlotRequest], ttl: float | None, *, timeout: float | None
) -> list[str | None]:
    """Set the ends of slots to `ttl` from now, None: no expiry. When each ends; None: it is lost."""
    return await _each(server, "extend", wanted, ttl, timeout)


async def force(
    server: Server, wanted: SlotRequest, ttl: float | None, *, timeout: float | None
) -> str | None:
    """Take a slot without regard to limits. When it ends, "" for never; None: another process has it."""
    return (await _each(server, "force", [wanted], ttl, timeout))[0]


async def _each(
    server: Server,
    verb: str,
    wanted: Sequence[SlotRequest],
    ttl: float | None,
    timeout: float | None,
) -> list[str | None]:
    by_home: dict[int, list[int]] = {}
    for n, one in enumerate(wanted):
        by_home.setdefault(one.home, []).append(n)
    calls = []
    for home, numbers in by_home.items():
        wishes: list[dict[str, Any]] = [
            {"verb": verb, "name": wanted[n].name, "slot": wanted[n].slot} for n in numbers
        ]
        if ttl is not None:
            wishes = [{**request, "lease": lease(ttl)} for request in wishes]
        calls.append(Call("update_slots", home, POLICY, [pack(wishes)]))
    ends: list[str | None] = [None] * len(wanted)
    answers = await server.each(calls, timeout=timeout)
    for numbers, answer in zip(by_home.values(), answers, strict=True):
        for n, (what, *rest) in zip(numbers, answer[1], strict=True):
            ends[n] = rest[0].decode() if what == b"ok" else None
    return ends


class Return(NamedTuple):
    """A slot to release; `undo`: its task has not started. With `began` the slot is kept, and the start of its task is
    recorded."""

    home: int
    ticket: str
    name: bytes
    undo: bool = False
    began: int | None = None

    def packed(self) -> dict[str, Any]:
        """As update_slots.lua reads it."""
        fields = {"name": blob(self.name), "ticket": self.ticket}
        if self.began is not None:
            return {"verb": "began", "at": str(self.began), **fields}
        return {"verb": "drop", "undo": self.undo, **fields}


async def release_slots(
    server: Server, returns: Sequence[Return], *, timeout: float | None
) -> None:
    """Release slots in their home partitions. Idempotent."""
    by_home: dict[int, list[dict[str, Any]]] = {}
    for one in returns:
        by_home.setdefault(one.home, []).append(one.packed())
    calls = [Call("update_slots", home, POLICY, [pack(wishes)]) for home, wishes in by_home.items()]
    await server.each(calls, timeout=timeout)


async def carry_releases(server: Server, parts: Collection[int], *, timeout: float | None) -> None:
    """Carry the releases that these partitions have recorded."""
    layout = server.layout
    sets = [(part, layout.key(part, "slot:returns")) for part in parts]
    commands = [(part, (b"SMEMBERS", key)) for part, key in sets]
    left = await server.commands(commands, timeout=timeout, writes=False)
    members = [list(found) for found in left]
    if not any(members):
        return
    await release_slots(
        server, [_return(one) for found in members for one in found], timeout=timeout
    )
    gone = [
        (part, (b"SREM", key, *found))
        for (part, key), found in zip(sets, members, strict=True)
        if found
    ]
    await server.commands(gone, timeout=timeout, writes=True)


async def release_orphans(server: Server, slots: Sequence[Return], *, timeout: float | None) -> int:
    """Release slots whose tasks are not leased under them; how many. Only for slots without expiry: such a slot is
    made while its task is leased, and an expired lease cannot become one without expiry. So an orphaned slot stays
    orphaned."""
    layout = server.layout
    now = to_micros(await server.now(timeout=timeout))
    commands = []
    for slot in slots:
        queue, run_id = _parts_of(slot.name)
        part = layout.part_of_task(queue, run_id)
        commands.append((part, (b"HGET", layout.key(part, "task:state"), slot.name)))
    states = await server.commands(commands, timeout=timeout, writes=False)
    dead = [one for one, state in zip(slots, states, strict=True) if not _lives(one, state, now)]
    if dead:
        await release_slots(server, dead, timeout=timeout)
    return len(dead)


def _lives(slot: Return, packed: bytes | None, now: int) -> bool:
    if packed is None:
        return False
    state = to_state(packed)
    until = state.get("until")
    is_held = state.get("owner") is not None and state.get("ticket") == slot.ticket
    return is_held and (until is None or int(until) + MAX_CLOCK_DIFFERENCE_US > now)


def _parts_of(name: bytes) -> tuple[str, str]:
    size = int(name[:8], 16)
    queue, rest = name[8 : 8 + size], name[8 + size :]
    return queue.decode(), rest[8 : 8 + int(rest[:8], 16)].decode()


async def check_orphans(server: Server, scope: str, *, timeout: float | None) -> int:
    """Periodically, when nothing may start: release orphaned slots without expiry."""
    now = asyncio.get_running_loop().time()
    if now < server.tidy_at.get(scope, 0.0):
        return 0
    server.tidy_at[scope] = now + TIDY_SECONDS
    return await repair_slots(server, server.layout.part_for(scope), timeout=timeout)


async def repair_slots(server: Server, part: int, *, timeout: float | None) -> int:
    """Release the slots without expiry of a partition whose tasks are gone; how many."""
    key, cursor, dead = server.layout.key(part, "slot:state"), b"0", 0
    while True:
        command = (b"HSCAN", key, cursor, b"COUNT", b"200")
        ((cursor, reply),) = await server.commands([(part, command)], timeout=timeout, writes=False)
        slots = {name: to_state(packed) for name, packed in pairs(reply).items()}
        endless = [
            Return(part, slot["ticket"], name)
            for name, slot in slots.items()
            if "until" not in slot
        ]
        if endless:
            dead += await release_orphans(server, endless, timeout=timeout)
        if int(cursor) == 0:
            return dead


async def keep(server: Server, claim: Claim, *, timeout: float | None) -> Claim | None:
    """Make the lease of a claim permanent; None if the claim is lost."""
    part = server.layout.part_of_task(claim.queue or "", claim.run_id)
    packed = pack_claim(claim) | {"keep": True}
    names = [*TASKS, of_run(claim.run_id, "tasks")]
    while True:
        call = Call("send_items", part, names, [pack([]), pack([packed])])
        answer = await server.call(call, timeout=timeout)
        if answer[0] != b"slot":
            return None if answer[0] == b"lost" else msgspec.structs.replace(claim, expires_at=None)
        (ends,) = await extend(server, [to_wanted(answer[2])], None, timeout=timeout)
        if ends is None:
            return None
        packed["slot_ends"] = ends


async def carry_releases_soon(
    server: Server, parts: Collection[int], *, timeout: float | None
) -> None:
    """The same after the caller's own work is done: a release that fails now is left to the next take."""
    try:
        await carry_releases(server, parts, timeout=timeout)
    except (TryAgain, StoreFault):
        return


def _return(member: bytes) -> Return:
    home, _, rest = member.partition(b" ")
    size = int(rest[:8], 16)
    return Return(int(home), rest[8 : 8 + size].decode(), rest[8 + size :])
