"""Reads of the contents of runs: reads of the same moment share one pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.model.ids import SEPARATOR
from outlast.ports.read_batcher import ReadBatcher
from outlast.stores.redis.connection import Command
from outlast.stores.redis.delete import (
    Deletions,
    deletions_command,
    finish_above,
    hidden_by,
    to_deletions,
)
from outlast.stores.redis.keys import of_run
from outlast.stores.redis.session import Server, Session

Page = tuple[str, int, int]
"""A page of an inbox: the run, the number before the first item, and the limit."""


class Reads:
    """The reads of one store."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.records: ReadBatcher[str, Any] = ReadBatcher(self._records)
        self.inboxes: ReadBatcher[Page, Any] = ReadBatcher(self._inboxes)

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

    async def _inboxes(self, pages: Sequence[Page], timeout: float | None) -> dict[Page, Any]:
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
