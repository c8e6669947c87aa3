"""Runs go from store to store as they are, and whoever asks for them is told where they went."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

import outlast
from outlast.errors import InvalidValue, Moved, NotFound, Unsupported
from outlast.model import Commit, Run, RunQuery, Status
from outlast.query import parse
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.transfer import address_of, move_runs
from tests.unit.transfer.family import FINISHED, WORKFLOWS, finish, furnish, look, short
from tests.unit.transfer.killing import killed, move_mortally, move_whole
from tests.unit.transfer.places import clear, new_place, store_at


@pytest.fixture
async def places(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[str]]:
    """Places along a road; the last one of a round trip is the first."""
    kinds = request.param.split()
    found = [new_place(kind, tmp_path) for kind in kinds]
    if kinds[0] == kinds[-1] and len(kinds) > 2:
        found[-1] = found[0]
    yield found
    for place in set(found):
        await clear(place)


@pytest.mark.proves("I3", "I7", "I2")
@pytest.mark.server
@pytest.mark.parametrize("places", ["sqlite postgres redis cluster sqlite"], indirect=True)
async def test_a_round_trip_changes_nothing(places: list[str]) -> None:
    """Records, histories, inboxes with what was consumed, timers, tasks, keys, facts: all is the same
    after each stage, tokens only grow, and in the end the runs come to theirs."""
    async with store_at(places[0]) as store:
        await furnish(store)
        before = await look(store)
        token = max([run.token async for run in store.find_all(RunQuery())])
    for source, target in pairwise(places):
        moves = await move_whole(source, target)
        assert (moves.runs, moves.families) == (8, 4)
        async with store_at(target) as new, store_at(source) as old:
            assert await look(new) == before
            assert await look(old) == {}
            [claimed] = await new.claim_runs("w", 60, run_ids=["trip-a"])
            assert claimed.claim.token > token
            token = claimed.claim.token
            await new.release([claimed.claim])
    async with store_at(places[-1]) as store:
        assert await finish(store) == FINISHED


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with runs in it, to be copied."""
    path = tmp_path_factory.mktemp("furnished") / "store.db"

    async def fill() -> None:
        async with SqliteStore(path) as store:
            await furnish(store)
            await store.checkpoint()

    asyncio.run(fill())
    return path


@pytest.mark.proves("I3", "I7", "I12")
def test_killed_before_any_write(furnished: Path, tmp_path: Path) -> None:
    """`kill -9` before each write of a move in turn, then once more before some write of the second
    try: the third brings all that is left, and nothing twice."""
    before = asyncio.run(_seen(f"sqlite {furnished}"))
    writes = asyncio.run(move_mortally(*_road(furnished, tmp_path, "all")))
    assert writes > 20
    chance = random.Random(1)
    for life in range(1, writes + 1):
        source, target = _road(furnished, tmp_path, str(life))
        assert killed(source, target, life)
        killed(source, target, chance.randint(1, writes))
        asyncio.run(move_whole(source, target))
        assert asyncio.run(_seen(target)) == before, life
        assert asyncio.run(_seen(source)) == {}, life


@pytest.mark.proves("I3", "I7")
@pytest.mark.server
@pytest.mark.parametrize("road", ["postgres redis", "redis postgres", "cluster sqlite"])
def test_killed_on_servers(tmp_path: Path, road: str) -> None:
    """The same between servers, killed again and again at random until there is nothing left to
    do; the runs then come to their end."""
    chance = random.Random(road)
    source, target = (new_place(kind, tmp_path) for kind in road.split())

    async def fill() -> None:
        async with store_at(source) as store:
            await furnish(store)

    asyncio.run(fill())
    before = asyncio.run(_seen(source))
    while killed(source, target, chance.randint(1, 30)):  # a family needs more than twelve writes
        pass
    assert asyncio.run(_seen(target)) == before
    assert asyncio.run(_seen(source)) == {}

    async def end() -> dict[str, list[int]]:
        async with store_at(target) as store:
            return await finish(store)

    assert asyncio.run(end()) == FINISHED
    for place in (source, target):
        asyncio.run(clear(place))


def _road(furnished: Path, folder: Path, name: str) -> tuple[str, str]:
    path = folder / f"{name}.db"
    shutil.copy(furnished, path)
    return f"sqlite {path}", f"sqlite {folder}/{name}-target.db"


async def _seen(place: str) -> object:
    async with store_at(place) as store:
        return await look(store)


# -- what others are told --------------------------------------------------------------------------


@pytest.mark.proves("I11", "I16")
async def test_whoever_asks_is_told_where() -> None:
    """Readers, senders, waiters, and those who would begin the run again get the new address; also
    for a child of which nothing is left."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        async with outlast.App(old, workflows=WORKFLOWS) as app:
            await outlast.move(old, new, address="memory:other")
            for asking in (
                app.get("trip-a").status(),
                app.get("trip-a").history(),
                app.get("trip-a~0/child.leg").history(),
                app.get("trip-a").entries(),
                app.get("trip-a").activities(),
                app.get("trip-a").signal("go"),
                app.get("trip-a~0/child.leg").signal("land"),
                app.get("ended").result(),
                app.get("trip-a").cancel(),
                app.get("trip-a~0/child.leg").cancel(),
                app.get("trip-a").terminate(),
                app.get("trip-a").query("bags"),
                app.get("trip-a").update("x"),
                app.start(short(5), id="ended"),
                app.start(short(5), id="ended", on_conflict="replace"),
            ):
                with pytest.raises(Moved) as caught:
                    await asking
                assert caught.value.moved_to == "memory:other"
            with pytest.raises(NotFound):
                await app.get("nobody").status()
            assert await app.get("trip-a").delete()


async def test_a_wait_that_is_under_way_is_told(tmp_path: Path) -> None:
    """Who waits for a result hears that the run has gone elsewhere, and waits no longer."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        async with outlast.App(old, workflows=WORKFLOWS) as app:
            waiting = asyncio.create_task(app.get("trip-a").result(timeout=60))
            await asyncio.sleep(0)
            await outlast.move(old, new, address="there")
            with pytest.raises(Moved):
                await waiting


async def test_only_what_matches_is_moved_and_with_its_family() -> None:
    """A child that matches takes its parents along; the others stay and work as before."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        moves = await move_runs(old, new, parse("id:guide-a"), address="there")
        assert moves.runs == 3
        assert set(await look(new)) == {"trip-a", "trip-a~0/child.leg", "guide-a"}
        assert set(await look(old)) == {"trip-b", "trip-b~0/child.leg", "guide-b", "ended", "plain"}
        assert (await move_runs(old, new, parse("id:guide-a"), address="there")).runs == 0


async def test_a_worker_that_holds_a_run_is_cut_off() -> None:
    """A step that was under way is made again at the target; the old worker records nothing."""
    begun, bodies = asyncio.Event(), []

    @outlast.step
    async def slow(where: str) -> int:
        bodies.append(outlast.step_info().attempt)
        begun.set()
        if len(bodies) == 1:
            await asyncio.sleep(3600)
        return len(bodies)

    @outlast.workflow
    async def job(where: str) -> int:
        return await slow(where)

    async with MemoryStore() as old, MemoryStore() as new:
        async with outlast.App(old, workflows=[job]) as app:
            await app.start(job("x"), id="j")
            await begun.wait()
            await outlast.move(old, new, address="there")
        async with outlast.App(new, workflows=[job]) as app:
            assert await app.get("j").result(timeout=60) == 2
            history = await app.get("j").history()
    assert [event.sequence for event in history] == list(range(1, len(history) + 1))
    assert sum(event.type == "step.completed" for event in history) == 1


# -- bad input -------------------------------------------------------------------------------------


async def test_an_id_that_is_taken_there_stays_here() -> None:
    """Another run of that name is told of before anything is sealed; the others are moved."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        await new.commit([Commit(run_id="guide-a", create=Run(id="guide-a"))])
        before = (await look(old))["trip-a"]
        moves = await move_runs(old, new, parse(""), address="there")
        assert list(moves.refused) == ["trip-a"]
        assert "exists already" in moves.refused["trip-a"]
        assert (await look(old))["trip-a"] == before
        assert moves.runs == 5


async def test_a_move_to_elsewhere_is_not_mixed_with_another(
    furnished: Path, tmp_path: Path
) -> None:
    """What is sealed for one store is not brought to another; nor is it deleted meanwhile."""
    source, target = _road(furnished, tmp_path, "torn")
    assert killed(source, target, 4)
    async with store_at(source) as old, MemoryStore() as new:
        sealed = [run.id async for run in old.find_all(RunQuery()) if run.moved_to is not None]
        moves = await move_runs(old, new, parse(""), address="elsewhere")
        assert moves.refused
        client = outlast.App(old)
        with pytest.raises(Moved):
            await client.get(sealed[0]).delete()


async def test_refusals_before_anything_is_done(tmp_path: Path) -> None:
    """The same store twice, a target without an address, a store that cannot, a question that
    cannot be understood."""
    with pytest.raises(InvalidValue, match="both"):
        await outlast.move("sqlite:///a.db", "sqlite:///a.db")
    async with MemoryStore() as store:
        with pytest.raises(InvalidValue, match="address"):
            await outlast.move("memory:", store)
        with pytest.raises(InvalidValue, match="statsu"):
            await outlast.move(store, store, "statsu:open", address="there")

        class Small(MemoryStore):
            capabilities = frozenset()

        with pytest.raises(Unsupported, match="Small"):
            await outlast.move(store, Small(), address="there")


def test_an_address_has_no_password() -> None:
    """What is kept in the store and told to others is no secret."""
    assert address_of("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert "secret" not in address_of("redis://host/0?password=secret")
    assert address_of("sqlite:///shop.db") == "sqlite:///shop.db"


async def test_a_moved_record_is_counted_as_what_it_is() -> None:
    """One closed record is left for a tree, in its old place in the order."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        created = (await old.get("ended")).created_at
        await outlast.move(old, new, address="there")
        left = await old.get("ended")
        assert (left.moved_to, left.status, left.created_at) == ("there", Status.CANCELLED, created)
        assert sum((await old.counts()).values()) == 6
