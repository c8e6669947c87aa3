"""Reads of the contents of runs: reads of the same moment share one pipeline.

Finding runs: newest first, filtered before the limit, by the most selective index.

Each partition has indexes that sort by text, with the time of creation and the id at the end. A search walks the
needed ranges in all partitions and merges them: its cost depends on the page, not on the size of the store.
Records are filtered again after they are read, because a run may have changed since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from heapq import merge
from typing import Any, NamedTuple

from outlast.model.ids import SEPARATOR
from outlast.model.query import Order, Page, RunQuery, cursor_of, parse_cursor
from outlast.model.run import Run, Status
from outlast.ports.read_batcher import ReadBatcher
from outlast.stores.redis.claims import distinct_prefixes
from outlast.stores.redis.connection import Command
from outlast.stores.redis.delete import (
    Deletions,
    deletions_command,
    finish_above,
    hidden_among,
    hidden_by,
    to_deletions,
)
from outlast.stores.redis.keys import framed, of_run, sortable
from outlast.stores.redis.packing import tag
from outlast.stores.redis.session import Server, Session
from outlast.stores.redis.unpacking import to_run

InboxPage = tuple[str, int, int]
"""A page of an inbox: the run, the number before the first item, and the limit."""


class Reads:
    """The reads of one store."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.records: ReadBatcher[str, Any] = ReadBatcher(self._records)
        self.inboxes: ReadBatcher[InboxPage, Any] = ReadBatcher(self._inboxes)

    async def one(
        self, run_id: str, what: str, command: bytes, *args: bytes, timeout: float | None
    ) -> Any:
        """One kind of contents of a run."""
        [reply] = await self._all([(run_id, what, (command, *args))], timeout)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _records(self, ids: Sequence[str], timeout: float | None) -> dict[str, Any]:
        asked = [(id, "state", (b"HGETALL",)) for id in ids]
        return dict(zip(ids, await self._all(asked, timeout), strict=True))

    async def _inboxes(
        self, pages: Sequence[InboxPage], timeout: float | None
    ) -> dict[InboxPage, Any]:
        asked = [
            (id, "inbox", (b"ZRANGEBYSCORE", b"(%d" % after, b"+inf", b"LIMIT", b"0", b"%d" % most))
            for id, after, most in pages
        ]
        return dict(zip(pages, await self._all(asked, timeout), strict=True))

    async def _all(
        self, asked: Sequence[tuple[str, str, Command]], timeout: float | None
    ) -> list[Any]:
        """Contents of runs, each by its own command; an error is a result."""
        server = await self._session.server()
        layout = server.layout
        commands = [
            (part, (name, layout.key(part, of_run(id, what)), *args))
            for id, what, (name, *args) in asked
            for part in [layout.part_of(id)]
        ]
        # Only a descendant can be hidden by the deletion of its tree.
        parts = sorted({layout.part_of(id) for id, _, _ in asked if SEPARATOR in id})
        marks = [deletions_command(server, part) for part in parts]
        replies = await server.replies([*marks, *commands], timeout=timeout, writes=False)
        found = [server.fault(one) if isinstance(one, Exception) else one for one in replies]
        if any(found[: len(parts)]):
            known = dict(zip(parts, map(to_deletions, found[: len(parts)]), strict=True))
            return await self._shown(server, asked, found[len(parts) :], known, timeout)
        return found[len(parts) :]

    async def _shown(
        self,
        server: Server,
        asked: Sequence[tuple[str, str, Command]],
        found: Sequence[Any],
        known: dict[int, Deletions],
        timeout: float | None,
    ) -> list[Any]:
        """The results, without those of deleted runs."""
        marks = [known.get(server.layout.part_of(id), {}) for id, _, _ in asked]
        for (id, _, _), above in zip(asked, marks, strict=True):
            if await finish_above(server, above, id, timeout=timeout):
                return await self._all(asked, timeout)
        return [
            (None if command[0] == b"GET" else []) if hidden_by(above, id) else one
            for (id, _, command), above, one in zip(asked, marks, found, strict=True)
        ]


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
        found = await _read(server, positions, page, timeout, ascending=order.ascending)
        # As far as the shortest page reaches, nothing that comes before can be missing.
        full = [places[-1] for places in found.values() if len(places) == page]
        end = min(full, default=LAST) if order.ascending else max(full, default=b"")
        merged = [
            place
            for place in merge(*found.values(), reverse=not order.ascending)
            if (place <= end if order.ascending else place >= end)
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
    ascending: bool,
) -> dict[Walk, list[bytes]]:
    """The next members of each walk, in order."""
    commands = []
    verb = b"ZRANGEBYLEX" if ascending else b"ZREVRANGEBYLEX"
    for walk, last in positions.items():
        first, end = (b"", LAST) if ascending else (LAST, b"")
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
    return place > end if order.ascending else place < end


def _position(query: RunQuery) -> bytes:
    moment, id = parse_cursor(query.after or "", query.order)
    # A forged cursor may name any number; beyond the end of time there is nothing.
    return sortable(max(min(moment, LATEST), -LATEST)) + id.encode()
