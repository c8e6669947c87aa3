"""A proxy in front of the server that cuts connections in the middle of a commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

from outlast.errors import Unavailable, UnknownOutcome
from outlast.model import Change, Commit, Committed, Event, Run, Task
from outlast.stores.postgres import PostgresStore
from outlast.testing.conformance.scenario import commit_patiently


class Proxy:
    """Passes bytes on until it is armed, and then so many more of one direction."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.left: int | None = None
        self.upstream = True
        self.seen = {True: 0, False: 0}
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; the URL to connect to."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))

    async def stop(self) -> None:
        """Cut everything."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def arm(self, *, left: int, upstream: bool) -> None:
        """Cut after so many bytes to the server, or from it."""
        self.left, self.upstream = left, upstream

    def cut(self) -> None:
        """End all connections at once."""
        self.left = None
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(self._url)
        there, back = await asyncio.open_connection(parts.hostname, parts.port)
        self._writers |= {writer, back}
        for source, sink, upstream in ((reader, back, True), (there, writer, False)):
            task = asyncio.ensure_future(self._pass_on(source, sink, upstream=upstream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, upstream: bool
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                self.seen[upstream] += len(data)
                if self.left is not None and upstream is self.upstream:
                    passed, self.left = data[: self.left], self.left - len(data)
                    sink.write(passed)
                    if self.left <= 0:
                        with suppress(OSError):
                            await sink.drain()
                        self.cut()
                        return
                else:
                    sink.write(data)
                await sink.drain()
        sink.transport.abort()


async def cut_commits(
    store: PostgresStore,
    proxy: Proxy,
    *,
    upstream: bool,
    places: Callable[[int], Iterable[int]],
) -> Counter[tuple[str, bool]]:
    """Cut one commit after another in the places that are chosen of so many bytes of the request, or
    of the answer. Whatever of the exchange got through, the caller hears that it is unknown or that
    nothing happened; asked by its id it has happened whole or not at all; sent again it has happened
    once. How often which was told, and whether it had happened."""
    url = await proxy.start()
    schema = store.database.queries.schema
    await store.commit([Commit(run_id="r", create=Run(id="r"))])
    cut_off = PostgresStore(url, schema=schema, pool_size=1, notify=False, clock=store.clock)
    results = Counter[tuple[str, bool]]()
    async with cut_off:
        await cut_off.commit([commit_to("r", 0)])  # from now on the statement is prepared
        before = proxy.seen[upstream]
        await cut_off.commit([commit_to("r", 1)])
        length = proxy.seen[upstream] - before
        done, tasks = 6, 2
        for left in places(length):
            # A new connection prepares first, undisturbed.
            await cut_off.find_one("r")
            warm = commit_to("r", tasks)
            with suppress(UnknownOutcome, Unavailable):
                await cut_off.commit([warm])
            settled = await commit_patiently(store, warm)
            assert isinstance(settled, Committed)
            done, tasks = done + 3, tasks + 1

            commit = commit_to("r", tasks)
            proxy.arm(left=left, upstream=upstream)
            try:
                await cut_off.commit([commit])
                told = "done"
            except UnknownOutcome:
                told = "unknown"
            except Unavailable:
                told = "not done"
            proxy.left = None
            # The server may still be at it: then the run is locked, and sending again waits.
            settled = await commit_patiently(store, commit)
            assert isinstance(settled, Committed)
            assert (told, settled.again) not in {("done", False), ("not done", True)}
            results[told, settled.again] += 1
            done, tasks = done + 3, tasks + 1
            assert (await store.get("r")).sequence == done
    assert results["unknown", not upstream]
    assert len(await store.find_available_tasks(limit=10_000)) == tasks
    return results


def commit_to(run_id: str, sequence: int) -> Commit:
    """A commit with several parts."""
    return Commit(
        run_id=run_id,
        events=tuple(Event(type="step.completed", run_id=run_id) for _ in range(3)),
        change=Change(current_step=f"s{sequence}", error="x" * 40),
        tasks=(Task(run_id=run_id, id=f"t{sequence}"),),
    )
