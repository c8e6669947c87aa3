"""ReadBatcher: reads that are requested in the same turn of the event loop go to the server as one.

::

    find_one("a") ─┐
    find_one("b") ─┼─▶ read(["a", "b", "c"]) ─▶ each caller gets its own
    find_one("c") ─┘

When a hundred runs end in one commit, a hundred callers read their results in the same turn. A single
read costs one turn of the loop more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Read = Callable[[Sequence[K], float | None], Awaitable[Mapping[K, V | Exception]]]
"""Reads names within a timeout: what was found by name, or an error that concerns one name."""

MOST = 100
"""Names in one read; each may be large."""


class ReadBatcher(Generic[K, V]):
    """Reads by name, for one event loop. `read` gets each name once, and leaves out missing ones."""

    def __init__(self, read: Read[K, V]) -> None:
        self._read = read
        self._waiting: dict[float | None, list[tuple[K, asyncio.Future[V | None]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, name: K, timeout: float | None) -> V | None:
        """What `read` finds for `name`, or None. Only reads with the same timeout are merged."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # plain code, as under Django: no other caller can join
            return _own(await self._read([name], timeout), name)
        answer: asyncio.Future[V | None] = loop.create_future()
        asked = self._waiting.setdefault(timeout, [])
        asked.append((name, answer))
        if len(asked) == 1:
            task = asyncio.create_task(self._read_for(asked, timeout))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if len(asked) == MOST:
            del self._waiting[timeout]
        return await answer

    async def _read_for(
        self, asked: list[tuple[K, asyncio.Future[V | None]]], timeout: float | None
    ) -> None:
        if self._waiting.get(timeout) is asked:
            del self._waiting[timeout]
        try:
            found = await self._read(list(dict.fromkeys(name for name, _ in asked)), timeout)
        except Exception as error:  # noqa: BLE001 - it belongs to the callers
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
        except BaseException:
            for _, answer in asked:
                answer.cancel()
            raise
        else:
            for name, answer in asked:
                if answer.done():
                    continue
                try:
                    answer.set_result(_own(found, name))
                except Exception as error:  # noqa: BLE001 - it belongs to this caller
                    answer.set_exception(error)


def _own(found: Mapping[K, V | Exception], name: K) -> V | None:
    value = found.get(name)
    if isinstance(value, Exception):
        raise value
    return value
