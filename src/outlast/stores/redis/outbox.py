"""The outbox: messages from one partition to another.

A commit, send or deletion that concerns another partition puts an entry into its own outbox, in the same script.
The writer carries it over at once; if that fails, the next process that polls for work does. Entries from one
partition to another are carried in order, and the receiving script records the last number: delivery is exactly
once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Struct

from outlast.stores.redis.concurrency_slots import carry_releases_soon
from outlast.stores.redis.keys import CLAIM_INDEXES, of_run
from outlast.stores.redis.packing import pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.unpacking import pairs


class _Item(Struct):
    run: str
    id: str


class _NewRun(Struct):
    id: str


class _Child(Struct):
    new_run: _NewRun


class Entry(Struct):
    """The fields of an outbox entry that a carrier needs."""

    to: int
    kind: str
    send: _Item | None = None
    start: _Child | None = None
    name: str = ""


_entry = msgspec.msgpack.Decoder(Entry)


async def relay(
    server: Server, sources: Collection[int], reached: set[str], *, timeout: float | None
) -> dict[str, list[Any]]:
    """Carry the entries of these partitions; the outcomes of items, by their ids. The runs that got an item are added
    to `reached`, also if this fails later."""
    answers: dict[str, list[Any]] = {}
    await carry_releases_soon(server, sources, timeout=timeout)
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
                reached.add(entry.send.run)
            await server.commands([(source, (b"HDEL", key, number))], timeout=timeout, writes=True)
    return answers


async def waiting(server: Server, *, timeout: float | None) -> list[int]:
    """The partitions whose outbox has entries."""
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
    request = pack({"source": str(source), "number": number.decode()})
    call = Call("receive_entry", entry.to, ["relayed", *_names(entry)], [request, packed])
    (answer,) = await server.calls([call], timeout=timeout)
    if isinstance(answer, Exception):
        return None
    return list(answer[1]) if answer[0] == b"done" else [b"again"]


def _names(entry: Entry) -> list[str]:
    if entry.send is not None:
        return [
            *(of_run(entry.send.run, what) for what in ("state", "inbox", "items")),
            *CLAIM_INDEXES,
        ]
    if entry.start is not None:
        return [of_run(entry.start.new_run.id, "state")]
    return [entry.name]
