"""A move that was killed is repeated after its runs have gone on where they came: nothing doubles, and
nothing is stuck."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import outlast
from outlast.model import Change, Commit, Run, RunQuery, Status
from outlast.model.times import NOW
from outlast.query import parse
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from outlast.transfer import move_runs
from outlast.transfer.importer import is_arriving
from tests.unit.transfer.family import furnish, look
from tests.unit.transfer.killing import killed, move_whole
from tests.unit.transfer.places import store_at


@outlast.workflow
async def round_(number: int) -> int:
    """A life that ends with the next."""
    await outlast.wait_for_signal("next")
    if number < 3:
        outlast.continue_as_new(round_(number + 1))
    return number


@pytest.mark.proves("I3", "I7")
def test_a_third_store_gets_each_run_once(tmp_path: Path) -> None:
    """Killed on the way from A to B; what is at B goes on to C; then from A to B again, and all to C.
    At no time is a life alive in two stores, and in the end all is in the third as it was."""
    chance = random.Random(8)
    first = tmp_path / "first.db"
    asyncio.run(_furnish(first))
    before = asyncio.run(_seen([f"sqlite {first}"]))[0]
    for life in (*sorted(chance.sample(range(4, 40), 5)), 31):
        a, b, c = (f"sqlite {tmp_path}/{life}-{name}.db" for name in "abc")
        Path(a.removeprefix("sqlite ")).write_bytes(first.read_bytes())
        assert killed(a, b, life), life
        asyncio.run(_on(b, c))
        asyncio.run(move_whole(a, b))
        seen = asyncio.run(_seen([a, b, c]))
        assert Counter(id for one in seen for id in one) == Counter(list(before)), life
        asyncio.run(move_whole(b, c))
        assert asyncio.run(_seen([a, b, c])) == [{}, {}, before], life


@pytest.mark.proves("I3")
def test_what_had_ended_is_not_doubled(tmp_path: Path) -> None:
    """A run that had ended is held by nobody: killed before it is marked as having come, and moved on
    from there, it does not come again. It may come back, and go the same way once more."""
    for life in range(1, 13):
        a, b, c = places = [f"sqlite {tmp_path}/{life}-{name}.db" for name in "abc"]
        asyncio.run(_end(a))
        before = asyncio.run(_seen([a]))[0]
        is_over = not killed(a, b, life)
        asyncio.run(_on(b, c))
        asyncio.run(move_whole(a, b))
        seen = asyncio.run(_seen(places))
        assert sum(map(len, seen)) == 1, life
        for source, target in ((b, c), (c, a), (a, b), (b, a), (a, b)):
            asyncio.run(move_whole(source, target))
        assert asyncio.run(_seen(places)) == [{}, before, {}], life
        if is_over:
            assert life > 5
            return
    raise AssertionError("it was killed all the time")


async def _end(place: str) -> None:
    async with store_at(place) as store:
        run = Run(id="e", workflow="w", status=Status.COMPLETED)
        await store.commit([Commit(run_id="e", create=run)])


async def _on(source: str, target: str) -> None:
    """Move what can be; a family that is not all here yet stays."""
    async with store_at(source) as old, store_at(target) as new:
        moves = await move_runs(old, new, parse(""), address=target)
        assert all("unfinished" in reason for reason in moves.refused.values()), moves.refused


@pytest.mark.proves("I3", "I12")
def test_its_next_life_there_is_no_obstacle(tmp_path: Path) -> None:
    """A run that came, and has begun its next life there before the move was repeated, is forgotten
    here; one that was deleted there does not come back."""
    kills = gone = 0
    for life in range(1, 20):
        for then in ("next", "delete"):
            a, b = (f"sqlite {tmp_path}/{life}-{then}-{name}.db" for name in "ab")
            asyncio.run(_begin(a))
            if not killed(a, b, life):
                assert kills > 10
                assert gone >= 2
                return
            kills += 1
            uid = asyncio.run(_go_on(b, then))
            gone += uid is not None
            asyncio.run(move_whole(a, b))
            assert asyncio.run(_lives(a)) == []
            lives = asyncio.run(_lives(b))
            assert len(lives) == 1 if uid is None else lives == [uid] * (then == "next"), life
    raise AssertionError("it was killed all the time")


async def _begin(place: str) -> None:
    async with store_at(place) as store, outlast.App(store, workflows=[round_]) as app:
        await app.start(round_(1), id="r")
        await _rests(app)


async def _rests(app: outlast.App, other_than: str = "") -> str:
    while True:
        wakeups = app.store.notifier.wakeups
        run = await app.store.get("r")
        if run.status is Status.WAITING and run.owner is None and run.uid != other_than:
            return run.uid
        await app.store.notifier.wait(app.store.clock, 0.2, since=wakeups)


async def _go_on(place: str, then: str) -> str | None:
    """Let it go on where it came; its next life. None if it has not come, or is held."""
    async with store_at(place) as store:
        run = await store.find_one("r")
        if run is None or is_arriving(run):
            return None
        if then == "delete":
            await store.delete("r")
            return ""
        async with outlast.App(store, workflows=[round_]) as app:
            await app.get("r").signal("next")
            return await _rests(app, run.uid)


async def _lives(place: str) -> list[str]:
    async with store_at(place) as store:
        return [run.uid async for run in store.find_all(RunQuery()) if run.moved_to is None]


async def _furnish(path: Path) -> None:
    async with SqliteStore(path) as store:
        await furnish(store)
        await store.checkpoint()


async def _seen(places: list[str]) -> list[dict[str, dict[str, object]]]:
    found = []
    for place in places:
        async with store_at(place) as store:
            found.append(await look(store))
    return found


@pytest.mark.proves("I7", "I8")
def test_what_came_ended_and_was_deleted_does_not_come_again(tmp_path: Path) -> None:
    """Killed before any of its writes: if the run goes on in the target after the hold of a dead mover,
    ends and is deleted, the next move brings nothing back. If it has not come, the next move brings it."""
    for life in range(1, 20):
        a, b = (f"sqlite {tmp_path}/{life}-{name}.db" for name in "ab")
        asyncio.run(_begin_open(a))
        is_over = not killed(a, b, life)
        came = asyncio.run(_end_and_delete(b, minutes=20))
        asyncio.run(move_whole(a, b))
        there = asyncio.run(_seen([b]))[0]
        assert list(there) == ([] if came else ["r"]), life
        if is_over:
            assert came
            return
    raise AssertionError("it was killed all the time")


async def _begin_open(place: str) -> None:
    async with store_at(place) as store:
        await store.commit([Commit(run_id="r", create=Run(id="r", workflow="w", runnable_at=NOW))])


async def _end_and_delete(place: str, *, minutes: float) -> bool:
    """What a worker does that comes later: whether it could claim the run."""
    later = ManualClock(datetime.now(UTC) + timedelta(minutes=minutes))
    async with SqliteStore(place.removeprefix("sqlite "), clock=later) as store:
        claimed = await store.claim_runs("worker", 60)
        for one in claimed:
            end = Change(status=Status.COMPLETED)
            await store.commit([Commit(run_id="r", token=one.claim.token, change=end)])
            await store.delete("r")
    return bool(claimed)
