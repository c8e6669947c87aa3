"""What has come of a family waits for the rest of it, however long that takes; what came whole waits for
no dead mover."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from outlast.model import Commit, Run, RunQuery, Status
from outlast.query import parse
from outlast.stores.memory import MemoryStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.wrapped_store import WrappedStore
from outlast.transfer import move_runs
from tests.unit.transfer.test_disturbed import Disturbed, Killed, die

T = TypeVar("T")
CHILDREN = [f"child-{n}" for n in range(6)]


class Slow(WrappedStore):
    """A store to which each run takes minutes to come."""

    def __init__(self, inner: MemoryStore, clock: ManualClock) -> None:
        super().__init__(inner)
        self._clock = clock
        self.free: list[str] = []
        """Who could have gone on before the last has come."""

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if name == "commit" and args[0][0].create is not None:
            self._clock.advance(250)
            self.free += await _free(self.inner)
        return await call()


@pytest.mark.proves("I7")
async def test_a_family_that_comes_slowly_is_held_until_all_is_there() -> None:
    """Six children that come in minutes each, longer than any hold: none goes on before its parent came."""
    clock = ManualClock()
    async with MemoryStore() as old, MemoryStore(clock=clock) as new:
        await _family(old)
        slow = Slow(new, clock)
        assert (await move_runs(old, slow, parse(""), address="there")).runs == 7
        assert slow.free == []
        assert sorted(await _free(new)) == sorted(["parent", *CHILDREN])


@pytest.mark.proves("I7")
async def test_what_a_dead_mover_held_is_held_on_by_the_next() -> None:
    """A part of a family whose mover died is held still while the next one brings the rest."""
    clock = ManualClock()
    async with MemoryStore() as old, MemoryStore(clock=clock) as new:
        await _family(old)
        dying = Disturbed(new, _brings("child-1"), die)
        with pytest.raises(Killed):
            await move_runs(old, dying, parse(""), address="there")
        assert {run.id async for run in new.find_all(RunQuery())} == set(CHILDREN[2:])
        clock.advance(300)
        assert await _free(new) == []
        slow = Slow(new, clock)
        assert (await move_runs(old, slow, parse(""), address="there")).runs == 7
        assert slow.free == []
        assert sorted(await _free(new)) == sorted(["parent", *CHILDREN])


@pytest.mark.proves("I7")
async def test_what_came_whole_does_not_wait_for_a_dead_mover() -> None:
    """A run without a family, whose mover died before it let go of it, goes on after a minute; and the next
    mover finds that it has come."""
    clock = ManualClock()
    async with MemoryStore() as old, MemoryStore(clock=clock) as new:
        await old.commit([_begin("alone")])
        dying = Disturbed(new, lambda name, args: name == "commit" and args[0][0].release, die)
        with pytest.raises(Killed):
            await move_runs(old, dying, parse(""), address="there")
        assert await _free(new) == []
        clock.advance(60)
        assert await _free(new) == ["alone"]
        moves = await move_runs(old, new, parse(""), address="there")
        assert (moves.runs, moves.refused) == (1, {})
        assert (await old.get("alone")).moved_to == "there"
        assert (await new.get("alone")).status is Status.WAITING


async def _free(store: Any) -> list[str]:
    """Who could be claimed by a worker now."""
    now = await store.now()
    return [
        run.id
        async for run in store.find_all(RunQuery())
        if run.claimed_until is None or run.claimed_until <= now
    ]


async def _family(store: MemoryStore) -> None:
    """A parent, and children with ids of their own, each of which is a tree."""
    for id, parent in [("parent", None), *((id, "parent") for id in CHILDREN)]:
        await store.commit([_begin(id, parent)])


def _begin(id: str, parent: str | None = None) -> Commit:
    run = Run(id=id, workflow="w", parent=parent, status=Status.WAITING)
    return Commit(run_id=id, create=run)


def _brings(run_id: str) -> Callable[[str, tuple[Any, ...]], bool]:
    return lambda name, args: name == "commit" and args[0][0].run_id == run_id
