"""Threads: one store object used from several threads, each with an event loop of its own.

For stores whose class of tests says ``thread_safe = True``; for others these tests are reported
as not declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from outlast.errors import RunExists
from outlast.model import Change, Claim, Commit, Committed, Outcome, Run, Task
from outlast.model.claim import ClaimedRun
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    begin_runnable,
    commit_patiently,
    deliver,
    done,
    events,
    patiently,
    signal,
)

T = TypeVar("T")
THREADS = 8
ROUNDS = 25


class Threads(StoreContract):
    """Nothing is lost between threads."""

    async def _in_threads(self, work: Callable[[int], Coroutine[Any, Any, T]]) -> list[T]:
        """Do `work(n)` in many threads at once, each in its own loop."""
        if not self.thread_safe:
            pytest.skip("not declared: thread_safe; this store object is for one loop")
        return await asyncio.gather(
            *(asyncio.to_thread(lambda n=n: asyncio.run(work(n))) for n in range(THREADS))  # type: ignore[misc]
        )

    @pytest.mark.proves("K-11", "K-12", "M-03", "S-22", "I1", "I3")
    async def test_threads_append_to_one_run(self, store: Store) -> None:
        """Every append of every thread is recorded, without a gap."""
        await begin(store, "r")

        async def work(_: int) -> list[int]:
            return [await patiently(store.append, "r", events("r", 2)) for _ in range(ROUNDS)]

        ends = [end for own in await self._in_threads(work) for end in own]
        total = 2 * THREADS * ROUNDS
        assert sorted(ends) == list(range(2, total + 1, 2))
        assert [one.sequence for one in await store.history("r")] == list(range(1, total + 1))

    @pytest.mark.proves("K-11", "K-12", "S-22")
    async def test_threads_append_to_runs_of_their_own(self, store: Store) -> None:
        """Threads do not disturb each other's runs."""

        async def work(n: int) -> None:
            for _ in range(ROUNDS):
                await patiently(store.append, f"r{n}", events(f"r{n}", 1))

        await self._in_threads(work)
        assert [await store.last_sequence(f"r{n}") for n in range(THREADS)] == [ROUNDS] * THREADS

    @pytest.mark.proves("K-11", "S-22", "I12")
    async def test_threads_read_what_another_writes(self, store: Store) -> None:
        """A reader in another thread sees whole commits only."""
        await begin(store, "r")

        async def work(n: int) -> None:
            for _ in range(ROUNDS):
                if n == 0:
                    commit = Commit(
                        run_id="r", events=events("r", 3), change=Change(current_step="x")
                    )
                    await commit_patiently(store, commit)
                else:
                    record, history = await store.get("r"), await store.history("r")
                    assert record.sequence % 3 == 0
                    assert len(history) % 3 == 0
                    assert len(history) >= record.sequence

        await self._in_threads(work)

    @pytest.mark.proves("S-12", "S-17", "S-22", "I5")
    async def test_threads_share_out_the_runs(self, store: Store) -> None:
        """No run is claimed by two threads, and none is left over."""
        ids = [f"r{n:03}" for n in range(THREADS * 10)]
        await begin_runnable(store, *ids)

        async def work(n: int) -> list[ClaimedRun]:
            claimed: list[ClaimedRun] = []
            for _ in ids:
                claimed += await patiently(store.claim_runs, f"w{n}", TTL, limit=3)
            return claimed

        claimed = [one for own in await self._in_threads(work) for one in own]
        assert sorted(one.run.id for one in claimed) == ids
        assert len({one.claim.token for one in claimed}) == len(ids)

    @pytest.mark.proves("I11", "S-22")
    async def test_threads_start_one_run(self, store: Store) -> None:
        """Of many starts from many threads, one creates the run."""

        async def work(_: int) -> Outcome:
            return await commit_patiently(store, Commit(run_id="r", create=Run(id="r")))

        outcomes = await self._in_threads(work)
        assert sum(isinstance(one, Committed) for one in outcomes) == 1
        assert sum(isinstance(one, RunExists) for one in outcomes) == THREADS - 1

    @needs(Capability.KEYS)
    @pytest.mark.proves("M-44", "I11", "S-22")
    async def test_threads_bind_one_key(self, store: Store) -> None:
        """Of many threads one binds each key."""

        async def work(n: int) -> list[str | None]:
            return [
                await patiently(store.remember, "scope", f"k{k}", f"{n}") for k in range(ROUNDS)
            ]

        answers = await self._in_threads(work)
        for k in range(ROUNDS):
            assert [own[k] for own in answers].count(None) == 1

    @needs(Capability.TASKS)
    @pytest.mark.proves("S-05", "S-15", "S-17", "S-22")
    async def test_threads_share_out_the_tasks(self, store: Store) -> None:
        """No task is claimed by two threads, and none is left over."""
        await begin(store, "r")
        ids = [f"t{n:03}" for n in range(ROUNDS)]
        await done(store, Commit(run_id="r", tasks=tuple(Task(id=id, run_id="r") for id in ids)))

        async def work(n: int) -> list[str]:
            claims = [await patiently(store.claim_task, "r", id, f"w{n}", ttl=TTL) for id in ids]
            return [claim.task_id or "" for claim in claims if claim is not None]

        assert sorted(id for own in await self._in_threads(work) for id in own) == ids

    @needs(Capability.INBOX)
    @pytest.mark.proves("I16", "C-17", "S-22")
    async def test_threads_send_to_one_run(self, store: Store) -> None:
        """Every item has a number of its own, and each thread's items keep their order."""
        await begin(store, "r")

        async def work(n: int) -> list[int]:
            return [
                (await patiently(deliver, store, signal("r", f"{n}"))).number for _ in range(ROUNDS)
            ]

        numbers = await self._in_threads(work)
        assert all(own == sorted(own) for own in numbers)
        everyone = sorted(number for own in numbers for number in own)
        assert everyone == list(range(1, THREADS * ROUNDS + 1))

    @pytest.mark.proves("I4")
    async def test_a_sibling_renews_while_this_loop_is_blocked(self, store: Store) -> None:
        """In a thread and a loop of its own; and closing it leaves this store open."""
        sibling = store.sibling()
        if sibling is None:
            pytest.skip("not declared: a sibling; leases are renewed on the loop of the program")
        await begin_runnable(store, "r")
        [claimed] = await store.claim_runs("w", TTL)

        async def renew() -> list[Claim | None]:
            async with sibling:
                return await sibling.renew([claimed.claim], 2 * TTL)

        with ThreadPoolExecutor(1) as thread:
            [renewed] = thread.submit(asyncio.run, renew()).result()  # nothing here moves meanwhile
        assert renewed is not None
        assert renewed.token == claimed.claim.token
        record = await store.get("r")
        assert record.claimed_until == renewed.expires_at
        assert record.claimed_until != claimed.claim.expires_at
