"""Slots: what a queue with rules has under way, counted in the partition of its scope.

A script that finds a task's slot in its own partition deals with it in the same step. Where they are
apart, a slot is taken or extended before its task is leased or renewed, and given back after: the script
that ends a lease leaves the return in its partition (`slot:returns`), and whoever called it carries it
over; if nobody does, the next one who looks for work does, and the slot ends with the lease at the
latest. So there may be a slot without a task for a while, and never a task without its slot.
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

CLOCKS = 1_000_000
"""Microseconds by which the clocks of two nodes surely do not differ."""
TIDY_SECONDS = 10.0
BRIEFLY = 60.0
"""Seconds for which a slot is taken that is to have no end, until its task is leased."""


class Wanted(Struct):
    """What a script asks for: a slot elsewhere."""

    home: int
    name: Raw
    slot: Raw


to_wanted = msgspec.msgpack.Decoder(Wanted).decode


def new_ticket() -> str:
    """The name of one lease, never used before."""
    return os.urandom(12).hex()


async def extend(
    server: Server, wanted: Sequence[Wanted], ttl: float | None, *, timeout: float | None
) -> list[str | None]:
    """Set the ends of slots to `ttl` from now, None: for good. When each ends; None: it is lost."""
    return await _each(server, "extend", wanted, ttl, timeout)


async def force(
    server: Server, wanted: Wanted, ttl: float | None, *, timeout: float | None
) -> str | None:
    """Take a slot whatever the limits are. When it ends, "" for never; None: somebody else has it."""
    return (await _each(server, "force", [wanted], ttl, timeout))[0]


async def _each(
    server: Server, verb: str, wanted: Sequence[Wanted], ttl: float | None, timeout: float | None
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
            wishes = [{**wish, "lease": lease(ttl)} for wish in wishes]
        calls.append(Call("update_slots", home, POLICY, [pack(wishes)]))
    ends: list[str | None] = [None] * len(wanted)
    answers = await server.each(calls, timeout=timeout)
    for numbers, answer in zip(by_home.values(), answers, strict=True):
        for n, (what, *rest) in zip(numbers, answer[1], strict=True):
            ends[n] = rest[0].decode() if what == b"ok" else None
    return ends


class Return(NamedTuple):
    """A slot to be given back; `undo`: its task has not even begun. With `began` it is kept, and told
    when its task began."""

    home: int
    ticket: str
    name: bytes
    undo: bool = False
    began: int | None = None

    def packed(self) -> dict[str, Any]:
        """As slots.lua reads it."""
        told = {"name": blob(self.name), "ticket": self.ticket}
        if self.began is not None:
            return {"verb": "began", "at": str(self.began), **told}
        return {"verb": "drop", "undo": self.undo, **told}


async def give_back(server: Server, returns: Sequence[Return], *, timeout: float | None) -> None:
    """Give slots back where they are counted. Doing it twice is harmless."""
    by_home: dict[int, list[dict[str, Any]]] = {}
    for one in returns:
        by_home.setdefault(one.home, []).append(one.packed())
    calls = [Call("update_slots", home, POLICY, [pack(wishes)]) for home, wishes in by_home.items()]
    await server.each(calls, timeout=timeout)


async def carry_back(server: Server, parts: Collection[int], *, timeout: float | None) -> None:
    """Give back what these partitions have left."""
    layout = server.layout
    sets = [(part, layout.key(part, "slot:returns")) for part in parts]
    commands = [(part, (b"SMEMBERS", key)) for part, key in sets]
    left = await server.commands(commands, timeout=timeout, writes=False)
    members = [list(found) for found in left]
    if not any(members):
        return
    await give_back(server, [_return(one) for found in members for one in found], timeout=timeout)
    gone = [
        (part, (b"SREM", key, *found))
        for (part, key), found in zip(sets, members, strict=True)
        if found
    ]
    await server.commands(gone, timeout=timeout, writes=True)


async def drop_dead(server: Server, slots: Sequence[Return], *, timeout: float | None) -> int:
    """Give back slots whose tasks are not leased under them, and how many those were. Only for slots
    without an end: such a one is made while its task is leased, and a lease that has run out is not
    made one without an end. So what is dead here stays dead."""
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
        await give_back(server, dead, timeout=timeout)
    return len(dead)


def _lives(slot: Return, packed: bytes | None, now: int) -> bool:
    if packed is None:
        return False
    state = to_state(packed)
    until = state.get("until")
    is_held = state.get("owner") is not None and state.get("ticket") == slot.ticket
    return is_held and (until is None or int(until) + CLOCKS > now)


def _parts_of(name: bytes) -> tuple[str, str]:
    size = int(name[:8], 16)
    queue, rest = name[8 : 8 + size], name[8 + size :]
    return queue.decode(), rest[8 : 8 + int(rest[:8], 16)].decode()


async def tidy_slots(server: Server, scope: str, *, timeout: float | None) -> int:
    """From time to time, where nothing may begin: give back slots without an end that nobody has."""
    now = asyncio.get_running_loop().time()
    if now < server.tidy_at.get(scope, 0.0):
        return 0
    server.tidy_at[scope] = now + TIDY_SECONDS
    return await reconcile_slots(server, server.layout.part_for(scope), timeout=timeout)


async def reconcile_slots(server: Server, part: int, *, timeout: float | None) -> int:
    """Give back the slots without an end in a partition whose tasks are gone; how many."""
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
            dead += await drop_dead(server, endless, timeout=timeout)
        if int(cursor) == 0:
            return dead


async def keep(server: Server, claim: Claim, *, timeout: float | None) -> Claim | None:
    """Let a claim hold its task for good; None if it was lost."""
    part = server.layout.part_of_task(claim.queue or "", claim.run_id)
    packed = pack_claim(claim) | {"keep": True}
    names = [*TASKS, of_run(claim.run_id, "tasks")]
    while True:
        call = Call("send", part, names, [pack([]), pack([packed])])
        answer = await server.call(call, timeout=timeout)
        if answer[0] != b"slot":
            return None if answer[0] == b"lost" else msgspec.structs.replace(claim, expires_at=None)
        (ends,) = await extend(server, [to_wanted(answer[2])], None, timeout=timeout)
        if ends is None:
            return None
        packed["slot_ends"] = ends


async def carry_soon(server: Server, parts: Collection[int], *, timeout: float | None) -> None:
    """The same, for one who has done what they came for. What cannot be given back now is left for the
    next one who looks for work."""
    try:
        await carry_back(server, parts, timeout=timeout)
    except (TryAgain, StoreFault):
        return


def _return(member: bytes) -> Return:
    home, _, rest = member.partition(b" ")
    size = int(rest[:8], 16)
    return Return(int(home), rest[8 : 8 + size].decode(), rest[8 + size :])
