"""Moves that others disturb: nothing that somebody was told is kept is lost, and nothing is doubled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import outlast
from outlast.errors import InvalidValue
from outlast.model import Commit, Creation, Status
from outlast.ports.store import Store
from outlast.query import parse
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testkit.wrapped_store import WrappedStore
from outlast.transfer import move_runs
from tests.unit.transfer.family import WORKFLOWS, furnish, look, short

T = TypeVar("T")
Deed = Callable[[], Awaitable[None]]


class Disturbed(WrappedStore):
    """A store in which somebody does something once, before a call that is looked for."""

    def __init__(self, inner: Store, before: Callable[[str, tuple[Any, ...]], bool], do: Deed):
        super().__init__(inner)
        self._before = before
        self._do: Deed | None = do

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if self._do is not None and self._before(name, args):
            do, self._do = self._do, None
            await do()
        return await call()


def forgets(run_id: str) -> Callable[[str, tuple[Any, ...]], bool]:
    """Before the record that says where a run has gone is put in its place."""

    def is_it(name: str, args: tuple[Any, ...]) -> bool:
        if name != "commit":
            return False
        commit: Commit = args[0][0]
        return commit.run_id == run_id and commit.creation is Creation.REPLACE

    return is_it


@pytest.mark.proves("I3")
async def test_a_store_under_two_names_is_not_moved_onto_itself(tmp_path: Path) -> None:
    """Another spelling of the same file is found out before anything is sealed."""
    path = tmp_path / "shop.db"
    async with SqliteStore(path) as store:
        await furnish(store)
        before = await look(store)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.db").symlink_to(path)
    for other in (f"{tmp_path}/sub/../shop.db", f"{tmp_path}/link.db"):
        with pytest.raises(InvalidValue, match="same store"):
            await outlast.move(f"sqlite:///{path}", f"sqlite:///{other}")
    async with SqliteStore(path) as store:
        assert await look(store) == before


async def test_one_open_store_is_not_moved_onto_itself() -> None:
    """The same for stores that are given as they are."""
    async with MemoryStore() as store:
        await furnish(store)
        before = await look(store)
        with pytest.raises(InvalidValue, match="same store"):
            await outlast.move(store, store, address="there")
        assert await look(store) == before


# -- what has ended is begun anew ------------------------------------------------------------------


async def _replace(store: Store, run_id: str) -> None:
    async with outlast.App(store, workflows=WORKFLOWS) as app:
        await app.start(short(70), id=run_id, on_conflict="replace")
        assert await app.get(run_id).result() == 71


async def _result(store: Store) -> bytes:
    return bytes((await store.get("ended")).result or b"")


@pytest.mark.proves("I3", "I7")
async def test_a_run_that_is_begun_anew_after_it_arrived_is_not_forgotten() -> None:
    """Its new life was acknowledged: it stays, and the mover says so; all others are moved."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        disturbed = Disturbed(old, forgets("ended"), lambda: _replace(old, "ended"))
        moves = await move_runs(disturbed, new, parse(""), address="there")
        assert list(moves.refused) == ["ended"]
        assert "started a new life" in moves.refused["ended"]
        assert await _result(old) == b"71"
        assert await _result(new) == b"6"
        assert set(await look(old)) == {"ended"}
        moves = await move_runs(old, new, parse(""), address="there")
        assert "exists already" in moves.refused["ended"]
        assert await _result(old) == b"71"


@pytest.mark.proves("I3", "I7")
@pytest.mark.parametrize("read", ["history", "entries", "contents"])
async def test_a_run_that_is_begun_anew_while_it_is_read_goes_as_it_is_now(read: str) -> None:
    """No mixture of two lives arrives: the new one does, whole."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        before = await look(old)
        disturbed = Disturbed(old, lambda name, _: name == read, lambda: _replace(old, "ended"))
        moves = await move_runs(disturbed, new, parse("id:ended"), address="there")
        assert (moves.runs, moves.refused) == (1, {})
        assert await _result(new) == b"71"
        numbers = [event.sequence for event in await new.history("ended")]
        assert numbers == list(range(1, (await new.get("ended")).sequence + 1))
        assert before["ended"]["events"][0] not in (await look(new))["ended"]["events"]
        assert set(await look(old)) == set(before) - {"ended"}


@outlast.step(retry=outlast.Retry(attempts=1))
async def fail(bags: int) -> int:
    if not MENDED:
        raise ValueError("torn")
    return bags


MENDED: list[bool] = []


@outlast.workflow
async def fragile(bags: int) -> int:
    return await fail(bags)


@outlast.workflow
async def parent(bags: int) -> str:
    try:
        await fragile(bags)
    except outlast.errors.ChildFailed:
        return "without"
    return "with"


@pytest.mark.proves("I3", "I7")
async def test_a_child_that_is_retried_after_it_arrived_is_not_forgotten() -> None:
    """A failed run below another can be retried too, while its root stays as it was."""
    MENDED.clear()
    async with MemoryStore() as old, MemoryStore() as new:
        async with outlast.App(old, workflows=[parent, fragile]) as app:
            await app.start(parent(1), id="p")
            assert await app.get("p").result() == "without"
        child = "p~child.fragile"
        assert (await old.get(child)).status is Status.FAILED

        async def retry() -> None:
            MENDED.append(True)
            async with outlast.App(old, workflows=[parent, fragile]) as app:
                await app.get(child).retry()
                assert await app.get(child).result() == 1

        disturbed = Disturbed(old, forgets(child), retry)
        moves = await move_runs(disturbed, new, parse(""), address="there")
        assert "started a new life" in moves.refused["p"]
        assert (await old.get(child)).status is Status.COMPLETED
        assert (await old.get("p")).moved_to is None


# -- two moves of the same runs --------------------------------------------------------------------


class Killed(Exception):
    """Stands for the death of a mover."""


async def die() -> None:
    raise Killed


@pytest.mark.proves("I3", "I7")
async def test_a_way_back_waits_for_the_way_there() -> None:
    """What has arrived and gone on is not taken back to where its old self still lies, sealed."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        with pytest.raises(Killed):
            await move_runs(Disturbed(old, forgets("trip-a"), die), new, parse(""), address="new")
        async with outlast.App(new, workflows=WORKFLOWS) as app:
            await app.get("trip-a").signal("more", 1)
        before = await look(new)
        moves = await move_runs(new, old, parse("id:trip-a"), address="old")
        assert "repeat that move first" in moves.refused["trip-a"]
        assert await look(new) == before
        assert (await move_runs(old, new, parse(""), address="new")).refused == {}
        assert await look(new) == before
        assert (await move_runs(new, old, parse(""), address="old")).refused == {}
        assert await look(old) == before
        assert await look(new) == {}


def seals(run_id: str) -> Callable[[str, tuple[Any, ...]], bool]:
    """Before what a run owns is looked at, so that it can be sealed."""
    return lambda name, args: name == "contents" and args[0] == run_id


@pytest.mark.proves("I3", "I7")
async def test_of_two_moves_to_two_stores_one_gets_a_run() -> None:
    """What another mover has sealed for its own target, after it was looked at, is left to it."""
    async with MemoryStore() as old, MemoryStore() as new, MemoryStore() as third:
        await furnish(old)
        before = await look(old)

        async def seal() -> None:
            dying = Disturbed(third, lambda name, _: name == "skip_tokens", die)
            with pytest.raises(Killed):
                await move_runs(old, dying, parse("id:trip-a"), address="third")

        disturbed = Disturbed(old, seals("trip-a"), seal)
        moves = await move_runs(disturbed, new, parse(""), address="new")
        assert "third" in moves.refused["trip-a"]
        assert (await move_runs(old, third, parse("id:trip-a"), address="third")).refused == {}
        family = {"trip-a", "trip-a~0/child.leg", "guide-a"}
        assert await look(third) == {id: before[id] for id in family}
        assert set(await look(new)) == set(before) - family
        assert await look(old) == {}


async def test_of_two_moves_of_an_ended_run_one_is_told_of_the_other() -> None:
    """What has ended may be copied twice, but the old store knows one address, and says which."""
    async with MemoryStore() as old, MemoryStore() as new, MemoryStore() as third:
        await furnish(old)

        async def faster() -> None:
            moves = await move_runs(old, third, parse("id:ended"), address="third")
            assert moves.refused == {}

        moves = await move_runs(
            Disturbed(old, forgets("ended"), faster), new, parse("id:ended"), address="new"
        )
        assert "third" in moves.refused["ended"]
        assert (await old.get("ended")).moved_to == "third"
