"""A run that is started with a signal: one commit, on every path, and the run that is there gets it too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidValue, RunClosed, RunExists, UnknownOutcome
from outlast.model.commit import Outcome
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app

paid = outlast.Signal("paid", int)


@outlast.workflow
async def basket(size: int) -> list[int]:
    return [await paid.wait() for _ in range(size)]


@outlast.workflow
async def waits_elsewhere() -> str:
    return "over"


class Counting(MemoryStore):
    """Counts the writes that create a run, and the messages that come on their own."""

    creations = 0
    sent = 0

    async def commit(self, commits: Any, **options: Any) -> list[Outcome]:
        self.creations += sum(commit.create is not None for commit in commits)
        return await super().commit(commits, **options)

    async def send(self, sends: Any, **options: Any) -> Any:
        self.sent += len(sends)
        return await super().send(sends, **options)


@pytest.mark.parametrize("here", [True, False])
async def test_the_run_and_its_signal_are_one_commit(here: bool) -> None:
    """The run has the signal from its first moment, started here or for any worker."""
    clock = VirtualClock()
    store = Counting(clock=clock)
    async with app(basket, store=store, clock=clock) as client:
        run = await client.start(basket(1), id="b", here=here, signal=(paid, 7))
        assert run.is_new
        assert await run.result() == [7]
    assert (store.creations, store.sent) == (1, 0)


async def test_a_run_that_is_there_gets_the_signal() -> None:
    """The answer says which it was; a key is received once, however often the start is repeated."""
    async with app(basket) as client:
        first = await client.start(basket(2), id="b", signal=(paid, 1, "p-1"))
        again = await client.start(basket(2), id="b", signal=(paid, 1, "p-1"))
        second = await client.start(basket(2), id="b", signal=("paid", 2))
        assert (first.is_new, again.is_new, second.is_new) == (True, False, False)
        assert await first.result() == [1, 2]
        assert not client.get("b").is_new


async def test_a_run_that_has_ended_or_differs_gets_nothing() -> None:
    """Nobody would read it: the caller learns that, and may replace the run."""
    async with app(basket) as client:
        await (await client.start(basket(1), id="b", signal=(paid, 1))).result()
        with pytest.raises(RunClosed):
            await client.start(basket(1), id="b", signal=(paid, 2))
        with pytest.raises(RunExists):
            await client.start(basket(2), id="b", signal=(paid, 2))
        run = await client.start(basket(1), id="b", on_conflict="replace", signal=(paid, 3))
        assert run.is_new
        assert await run.result() == [3]


async def test_a_value_that_does_not_fit_starts_nothing() -> None:
    """It is checked before the run is created."""
    async with app(basket) as client:
        with pytest.raises(outlast.errors.OutlastError):
            await client.start(basket(1), id="b", signal=(paid, "seven"))
        with pytest.raises(InvalidValue, match="signal="):
            await client.start(basket(1), id="b", signal=paid)  # type: ignore[call-overload]
        assert await client.store.find_one("b") is None


async def test_a_start_whose_answer_is_lost_sends_once() -> None:
    """The commit is sent again as it is."""

    class Deaf(MemoryStore):
        was_lost = False

        async def commit(self, commits: Any, **options: Any) -> list[Outcome]:
            outcomes = await super().commit(commits, **options)
            if not self.was_lost:
                self.was_lost = True
                raise UnknownOutcome("the answer was lost")
            return outcomes

    clock = VirtualClock()
    async with app(basket, store=Deaf(clock=clock), clock=clock) as client:
        run = await client.start(basket(2), id="b", signal=(paid, 1))
        await run.signal(paid, 2)
        assert await run.result() == [1, 2]


async def test_by_name_for_a_worker_elsewhere(tmp_path: Path) -> None:
    """A client without the code starts with a signal; the worker receives it, from a file as well."""
    place = f"sqlite:///{tmp_path / 'runs.db'}"
    async with outlast.Client(place) as client:
        run = await client.start("basket", [1], id="b", signal=("paid", 5))
        assert run.is_new
    async with outlast.App(place, workflows=[basket]) as worker:
        assert await worker.get("b").result(timeout=30) == [5]


async def test_a_run_that_ends_at_once_leaves_the_signal() -> None:
    """A workflow that waits for nothing is no reason to fail the start."""
    async with app(waits_elsewhere) as client:
        run = await client.start(waits_elsewhere(), signal=("paid", 1))
        assert await run.result() == "over"
