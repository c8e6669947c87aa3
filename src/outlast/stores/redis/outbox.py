"""Relay: what one partition has for another, carried over.

A commit, a send or a deletion that concerns another partition leaves an entry in its own outbox, in the
same script. Whoever wrote it carries it over at once; if that fails, anybody who looks for work finds
it later. Entries of one partition for another are carried in their order, and the receiving script
notes the number of the last: what comes twice is taken once, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Struct

from outlast.stores.redis.concurrency_slots import carry_soon
from outlast.stores.redis.keys import CLAIM_INDEXES, of_run
from outlast.stores.redis.packing import pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.unpacking import pairs


class _Item(Struct):
    run: str
    id: str


class _Fresh(Struct):
    id: str


class _Child(Struct):
    fresh: _Fresh


class Entry(Struct):
    """As much of an entry of an outbox as is needed to carry it."""

    to: int
    kind: str
    send: _Item | None = None
    start: _Child | None = None
    name: str = ""


_entry = msgspec.msgpack.Decoder(Entry)


async def relay(
    server: Server, sources: Collection[int], *, timeout: float | None
) -> dict[str, list[Any]]:
    """Carry over what these partitions have left; what became of items, by their ids."""
    answers: dict[str, list[Any]] = {}
    await carry_soon(server, sources, timeout=timeout)
    for source in sources:
        key = server.layout.key(source, "outbox")
        (reply,) = await server.commands(
            [(source, (b"HGETALL", key))], timeout=timeout, writes=False
        )
        blocked: set[int] = set()
        for number, packed in sorted(pairs(reply).items(), key=lambda pair: int(pair[0])):
            entry = _entry.decode(packed)
            if entry.to in blocked:
                continue
            answer = await _carry(server, source, number, packed, entry, timeout)
            if answer is None:
                blocked.add(entry.to)  # what comes after it must not overtake it
                continue
            if entry.send is not None:
                answers[entry.send.id] = answer
            await server.commands([(source, (b"HDEL", key, number))], timeout=timeout, writes=True)
    return answers


async def waiting(server: Server, *, timeout: float | None) -> list[int]:
    """The partitions that have something to relay."""
    layout = server.layout
    if layout.partitions == 1:
        return []
    commands = [
        (part, (b"EXISTS", layout.key(part, "outbox"), layout.key(part, "slot:returns")))
        for part in range(layout.partitions)
    ]
    found = await server.commands(commands, timeout=timeout, writes=False)
    return [part for part, has_some in enumerate(found) if has_some]


async def _carry(
    server: Server, source: int, number: bytes, packed: bytes, entry: Entry, timeout: float | None
) -> list[Any] | None:
    wish = pack({"source": str(source), "number": number.decode()})
    call = Call("receive_entry", entry.to, ["relayed", *_names(entry)], [wish, packed])
    (answer,) = await server.calls([call], timeout=timeout)
    if isinstance(answer, Exception):
        return None
    return list(answer[1]) if answer[0] == b"done" else [b"again"]


def _names(entry: Entry) -> list[str]:
    if entry.send is not None:
        return [*(of_run(entry.send.run, what) for what in ("state", "inbox", "items")), *CLAIM_INDEXES]
    if entry.start is not None:
        return [of_run(entry.start.fresh.id, "state")]
    return [entry.name]
