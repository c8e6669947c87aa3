"""Finding runs: newest first, filtered before the limit, along the index that narrows most.

Each partition has its indexes, sorted by text with the time of creation and the id at the end. A
search walks the ranges that it needs in all partitions and merges them; so it costs what it shows, not
what the store holds. The records that it then reads are filtered again: a run may have moved since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from heapq import merge
from typing import NamedTuple

from outlast.model.query import Page, RunQuery, cursor_of, parse_cursor
from outlast.model.run import Run, Status
from outlast.model.times import to_micros
from outlast.stores.redis.claims import frames_of
from outlast.stores.redis.keys import framed, of_run, sortable
from outlast.stores.redis.packing import tag
from outlast.stores.redis.session import Server
from outlast.stores.redis.unpacking import to_run

PAGE = 200
WIDTH = 21  # of `sortable`
LATEST = 2**63


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
            return Page(items, cursor_of(items[-1]))
        items.append(run)
    return Page(items, None)


async def find_runs(server: Server, ids: list[str], *, timeout: float | None) -> list[Run | None]:
    """The records of runs, in order."""
    layout = server.layout
    parts = [layout.part_of(id) for id in ids]
    commands = [
        (part, (b"HGETALL", layout.key(part, of_run(id, "state"))))
        for part, id in zip(parts, ids, strict=True)
    ]
    replies = await server.commands(commands, timeout=timeout, writes=False) if commands else []
    return [to_run(id, reply) for id, reply in zip(ids, replies, strict=True)]


async def _matching(server: Server, query: RunQuery, timeout: float | None) -> AsyncIterator[Run]:
    walks = await _walks(server, query, timeout)
    page = min(query.limit + 1, PAGE)
    before = None if query.after is None else _position(query.after)
    positions: dict[Walk, bytes | None] = dict.fromkeys(walks, before)
    shown: tuple[bytes, bytes] | None = None
    while positions:
        found = await _read(server, positions, page, timeout)
        # As far as the shortest page reaches, nothing newer can be missing.
        full = [places[-1] for places in found.values() if len(places) == page]
        end = max(full, default=b"")
        merged = [place for place in merge(*found.values(), reverse=True) if place >= end]
        ids = [place[WIDTH:].decode() for place in merged]
        for run in await find_runs(server, ids, timeout=timeout):
            if run is None or not query.matches(run):
                continue
            place = (sortable_of(run), run.id.encode())
            if shown is None or place < shown:  # one that moves between files is shown once
                shown = place
                yield run
        positions = {
            walk: end
            for walk, places in found.items()
            if len(places) == page or (places and places[-1] < end)
        }


async def _read(
    server: Server, positions: dict[Walk, bytes | None], page: int, timeout: float | None
) -> dict[Walk, list[bytes]]:
    """The next places of each walk, newest first."""
    commands = []
    for walk, before in positions.items():
        start = b"(" + walk.head + (b"\xff" if before is None else before)
        end = b"[" + walk.head
        key = server.layout.key(walk.part, walk.place)
        command = (b"ZREVRANGEBYLEX", key, start, end, b"LIMIT", b"0", b"%d" % page)
        commands.append((walk.part, command))
    replies = await server.commands(commands, timeout=timeout, writes=False)
    return {
        walk: [member[len(walk.head) :] for member in members]
        for walk, members in zip(positions, replies, strict=True)
    }


async def _walks(server: Server, query: RunQuery, timeout: float | None) -> list[Walk]:
    parts = range(server.layout.partitions)
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
            (part, framed(name)) for part, name, _ in await frames_of(server, "idx:filed", timeout)
        ]
    return [
        Walk(part, "idx:filed", file + framed(status.value))
        for part, file in files
        for status in query.status or Status
    ]


def sortable_of(run: Run) -> bytes:
    """When a run was created, as the indexes have it."""
    return sortable(to_micros(run.created_at))


def _position(cursor: str) -> bytes:
    created_at, id = parse_cursor(cursor)
    # A forged cursor may name any number; beyond the end of time there is nothing.
    return sortable(max(min(created_at, LATEST), -LATEST)) + id.encode()
