"""Commits whose connection is cut somewhere in the middle by a proxy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

from outlast.errors import Unavailable, UnknownOutcome
from outlast.model import Change, Commit, Committed, Event, Run, Task
from outlast.stores.postgres import PostgresStore
from outlast.testkit.conformance.scenario import commit_patiently
from tests.unit.testkit.faults.proxy import Proxy


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
