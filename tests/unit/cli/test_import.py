"""An import is a move out of a file: all that a run owned comes, in one piece, once."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from outlast.cli.export_file import Redaction, read, write
from outlast.errors import Moved
from outlast.model import Commit, Item, Run, RunQuery, Send, Status, Task
from outlast.ports.store import Store
from outlast.query import parse
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.transfer import Bundle, export_runs, import_runs, move_runs
from tests.unit.transfer.family import furnish, look, owned_by
from tests.unit.transfer.killing import Countdown, Mortal
from tests.unit.transfer.places import clear, new_place, store_at

MANY = {"sqlite": 12_000, "redis": 12_000, "postgres": 2_500}


async def filed(store: Store, run_id: str, *names: str) -> bytes:
    """A family as a file."""
    file = io.BytesIO()
    write(file, await export_runs(store, run_id), Redaction(names), await store.now())
    return file.getvalue()


def unfiled(file: bytes) -> list[Bundle]:
    """The family in a file."""
    return read(io.BytesIO(file), "file")[1]


HEADS = {"trip-a": 3, "trip-b": 3, "ended": 1, "plain": 1}


@pytest.mark.proves("I3", "I7")
@pytest.mark.server
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis", "cluster"])
async def test_all_that_a_run_owns_comes_back(kind: str, tmp_path: Path) -> None:
    """History, facts, children, queued and dead steps, inbox with what was consumed, timers, keys,
    audit lines, snapshot: live, all is as it was; and again, nothing is changed."""
    place = new_place(kind, tmp_path)
    async with MemoryStore() as old, store_at(place) as new:
        await furnish(old)
        before = await look(old)
        for head, runs in HEADS.items():
            family = unfiled(await filed(old, head))
            restored = await import_runs(new, family, live=True)
            assert (restored.runs, restored.written) == (runs, runs)
            assert (await import_runs(new, unfiled(await filed(old, head)), live=True)).written == 0
        assert await look(new) == before
        assert await look(old) == before
    await clear(place)


@pytest.mark.proves("I3")
@pytest.mark.server
@pytest.mark.parametrize("kind", MANY)
async def test_more_items_than_a_page(kind: str, tmp_path: Path) -> None:
    """12,000 messages, a third of them consumed, come with the run in the order in which they came."""
    many = MANY[kind]
    place = new_place(kind, tmp_path)
    async with MemoryStore() as old, store_at(place) as new:
        items = [Item(kind="signal", name="s", id=f"i{n:05}") for n in range(many)]
        await old.commit([Commit(run_id="r", create=Run(id="r", status=Status.WAITING))])
        await old.send([Send(run_id="r", item=item) for item in items])
        consumes = tuple(range(1, many + 1, 3))
        await old.commit([Commit(run_id="r", consumes=consumes)])
        before = await _messages(old)
        assert len(before[0]) == many
        assert len(before[1]) == many - len(consumes)
        await import_runs(new, unfiled(await filed(old, "r")), live=True)
        assert await _messages(new) == before
    await clear(place)


async def _messages(store: Store) -> tuple[list[str], list[str]]:
    found: list[Item] = []
    while page := await store.inbox("r", after=found[-1].number if found else 0, limit=5000):
        found += page
    receipts = (await store.contents("r")).receipts
    return sorted(receipts), [item.id for item in found]


@pytest.mark.proves("I3", "I12")
def test_killed_before_any_write(tmp_path: Path) -> None:
    """`kill -9` before each write of an import in turn: the tree is there as a whole or not at all, and
    the next import brings all that is left, and nothing twice."""

    async def prepare() -> tuple[bytes, Any]:
        async with MemoryStore() as old:
            await furnish(old)
            seen = await look(old)
            family = ("trip-a", "trip-a~0/child.leg", "guide-a")
            return await filed(old, "trip-a"), {id: seen[id] for id in family}

    file, before = asyncio.run(prepare())
    life, is_over = 0, False
    while not is_over:
        life += 1
        path = tmp_path / f"{life}.db"
        is_over = not _killed(path, file, life)
        there = asyncio.run(_look(path))
        assert ("trip-a" in there) == ("trip-a~0/child.leg" in there), life
        asyncio.run(_import(path, file, -1))
        assert asyncio.run(_look(path)) == before, life
    assert life > 5


async def _look(path: Path) -> dict[str, dict[str, object]]:
    async with SqliteStore(path) as store:
        return await look(store)


async def _import(path: Path, file: bytes, life: int) -> None:
    async with SqliteStore(path) as store:
        await import_runs(Mortal(store, Countdown(life)), unfiled(file), live=True)


def _killed(path: Path, file: bytes, life: int) -> bool:
    with warnings.catch_warnings():
        # From 3.12 on Python warns where there are threads; the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(_import(path, file, life))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


async def test_what_had_not_ended_comes_paused_with_its_steps_held_back() -> None:
    """Nobody is handed a queued step of it until somebody brings it back."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        restored = await import_runs(new, await export_runs(old, "plain"))
        assert restored.waiting == 2
        run = await new.get("plain")
        assert (run.status, run.runnable_at) == (Status.PAUSED, None)
        assert await new.find_available_tasks(limit=10) == []
        async with new.queue() as queue:
            assert {one.task.id for one in await queue.dead("own")} == {"t", "u", "lost"}
            assert await queue.redrive("own", ["t", "u"]) == 2
        assert len(await new.find_available_tasks(limit=10)) == 2
        kept = await owned_by(old, await old.get("plain"))
        for name in ("events", "items", "receipts", "timers", "keys", "facts", "snapshot"):
            assert (await owned_by(new, run))[name] == kept[name], name


async def test_a_run_that_was_moved_away_is_not_restored_behind_its_back() -> None:
    """It goes on elsewhere: a copy of what it was before would double it."""
    async with MemoryStore() as here, MemoryStore() as there:
        await furnish(here)
        family = await export_runs(here, "ended")
        await move_runs(here, there, parse("id:ended"), address="there")
        with pytest.raises(Moved):
            await import_runs(here, family)
        with pytest.raises(Moved):
            await export_runs(here, "ended")


async def test_nothing_is_written_if_one_of_a_family_cannot_be_there() -> None:
    """Another run under the id of a child with an id of its own: the whole file is refused."""
    async with MemoryStore() as old, MemoryStore() as new:
        await furnish(old)
        await new.commit([Commit(run_id="guide-a", create=Run(id="guide-a"))])
        with pytest.raises(Exception, match="exists already"):
            await import_runs(new, await export_runs(old, "trip-a"))
        assert [run.id async for run in new.find_all(RunQuery())] == ["guide-a"]


async def test_what_is_blotted_out_is_nowhere() -> None:
    """In queued and dead steps neither; a snapshot, which nobody can look into, stays behind."""
    async with MemoryStore() as old:
        await furnish(old)
        secret = Task(id="s", run_id="plain", queue="own", input=Raw(b'{"card":"4711"}'))
        await old.commit([Commit(run_id="plain", tasks=(secret,))])
        assert b"4711" in await filed(old, "plain")
        safe = await filed(old, "plain", "card")
        assert b"4711" not in safe
        (bundle,) = unfiled(safe)
        assert bundle.snapshot is None
        [task] = [task for task in bundle.tasks if task.id == "s"]
        assert task.input is not None
        assert msgspec.json.decode(task.input) == {"card": "[redacted]"}
