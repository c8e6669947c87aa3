"""Finding runs: newest first, filtered before the limit, by the most selective index.

Each partition has indexes that sort by text, with the time of creation and the id at the end. A search walks the
needed ranges in all partitions and merges them: its cost depends on the page, not on the size of the store.
Records are filtered again after they are read, because a run may have changed since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from heapq import merge
from typing import NamedTuple

from outlast.model.query import Order, Page, RunQuery, cursor_of, parse_cursor
from outlast.model.run import Run, Status
from outlast.stores.redis.claims import distinct_prefixes
from outlast.stores.redis.delete import hidden_among
from outlast.stores.redis.keys import framed, of_run, sortable
from outlast.stores.redis.packing import tag
from outlast.stores.redis.session import Server
from outlast.stores.redis.unpacking import to_run

PAGE = 200
WIDTH = 21  # of `sortable`
LATEST = 2**63
LAST = b"\xff"  # after all places


class Walk(NamedTuple):
    """A range of an index in one partition: all members that begin with `head`."""

    part: int
    place: str
    head: bytes


async def find(server: Server, query: RunQuery, *, timeout: float | None) -> Page[Run]:
    """A page of runs that match."""
    items: list[Run] = []
    async for run in _matching(server, query, timeout):
        if len(items) == query.limit:
            return Page(items, cursor_of(items[-1], query.order))
        items.append(run)
    return Page(items, None)


async def find_runs(server: Server, ids: list[str], *, timeout: float | None) -> list[Run | None]:
    """The records of runs, in order."""
    layout = server.layout
    parts = [layout.part_of(id) for id in ids]
    hidden = await hidden_among(server, ids, timeout=timeout)
    commands = [
        (part, (b"HGETALL", layout.key(part, of_run(id, "state"))))
        for part, id in zip(parts, ids, strict=True)
    ]
    replies = await server.commands(commands, timeout=timeout, writes=False) if commands else []
    return [
        None if id in hidden else to_run(id, reply) for id, reply in zip(ids, replies, strict=True)
    ]


async def _matching(server: Server, query: RunQuery, timeout: float | None) -> AsyncIterator[Run]:
    walks = await _walks(server, query, timeout)
    page = min(query.limit + 1, PAGE)
    order = query.order
    last = None if query.after is None else _position(query)
    positions: dict[Walk, bytes | None] = dict.fromkeys(walks, last)
    shown: tuple[int, str] | None = None
    while positions:
        found = await _read(server, positions, page, timeout, rises=order.rises)
        # As far as the shortest page reaches, nothing that comes before can be missing.
        full = [places[-1] for places in found.values() if len(places) == page]
        end = min(full, default=LAST) if order.rises else max(full, default=b"")
        merged = [
            place
            for place in merge(*found.values(), reverse=not order.rises)
            if (place <= end if order.rises else place >= end)
        ]
        ids = [place[WIDTH:].decode() for place in merged]
        runs = await find_runs(server, ids, timeout=timeout)
        for place, run in zip(merged, runs, strict=True):
            if run is None or not query.matches(run):
                continue
            position = order.position(run)
            # One that moves between files is shown once; one that was changed since has another place.
            is_here = place == sortable(position[0]) + run.id.encode()
            if is_here and (shown is None or order.is_past(position, shown)):
                shown = position
                yield run
        positions = {
            walk: end
            for walk, places in found.items()
            if len(places) == page or (places and _is_past(places[-1], end, order))
        }


async def _read(
    server: Server,
    positions: dict[Walk, bytes | None],
    page: int,
    timeout: float | None,
    *,
    rises: bool,
) -> dict[Walk, list[bytes]]:
    """The next members of each walk, in order."""
    commands = []
    verb = b"ZRANGEBYLEX" if rises else b"ZREVRANGEBYLEX"
    for walk, last in positions.items():
        first, end = (b"", LAST) if rises else (LAST, b"")
        start = b"(" + walk.head + (first if last is None else last)
        stop = b"[" + walk.head + end
        key = server.layout.key(walk.part, walk.place)
        command = (verb, key, start, stop, b"LIMIT", b"0", b"%d" % page)
        commands.append((walk.part, command))
    replies = await server.commands(commands, timeout=timeout, writes=False)
    return {
        walk: [member[len(walk.head) :] for member in members]
        for walk, members in zip(positions, replies, strict=True)
    }


async def _walks(server: Server, query: RunQuery, timeout: float | None) -> list[Walk]:
    parts = range(server.layout.partitions)
    if query.order is not Order.NEWEST:
        index = "idx:updated" if query.order.by_change else "idx:created"
        return [Walk(part, index, b"") for part in parts]
    if query.parent is not None:
        return [Walk(part, "idx:parent", framed(query.parent)) for part in parts]
    for name, value in query.attributes.items():
        return [Walk(part, "idx:attr", framed(tag(name, value))) for part in parts]
    if query.workflow is None and not query.status:
        return [Walk(part, "idx:created", b"") for part in parts]
    if query.workflow is not None:
        files = [(part, framed(query.workflow)) for part in parts]
    else:
        files = [
            (part, framed(name))
            for part, name, _ in await distinct_prefixes(server, "idx:workflow", timeout)
        ]
    return [
        Walk(part, "idx:workflow", file + framed(status.value))
        for part, file in files
        for status in query.status or Status
    ]


def _is_past(place: bytes, end: bytes, order: Order) -> bool:
    return place > end if order.rises else place < end


def _position(query: RunQuery) -> bytes:
    moment, id = parse_cursor(query.after or "", query.order)
    # A forged cursor may name any number; beyond the end of time there is nothing.
    return sortable(max(min(moment, LATEST), -LATEST)) + id.encode()
