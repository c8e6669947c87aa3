"""The engine on stores of SQLAlchemy: the corpus, and workers of both kinds on the same runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.contrib.sqlalchemy import store_of
from outlast.contrib.sqlalchemy.postgres import SqlAlchemyPostgresStore
from outlast.contrib.sqlalchemy.store import binding_of
from outlast.model.run import Status
from outlast.ports import Store
from outlast.stores.postgres import PostgresStore
from outlast.testing.virtual_clock import VirtualClock
from tests.corpus.case import RUN, Case, lines, told
from tests.corpus.every import CASES
from tests.corpus.stage import play
from tests.stores.postgres.places import SCHEMA, direct, wipe
from tests.unit.contrib.sqlalchemy.places import dispose, engine_of

pytestmark = pytest.mark.timeout(300)


class FreshStore(SqlAlchemyPostgresStore):
    """A store that is empty when it is first opened."""

    is_fresh = False

    async def open(self) -> None:
        await super().open()
        if not self.is_fresh:
            self.is_fresh = True
            await wipe(self.database)


@pytest.fixture
async def engine(kind: str, tmp_path: Path) -> AsyncIterator[Any]:
    """An engine of the application."""
    engine = engine_of(kind, tmp_path)
    yield engine
    await dispose(engine)


@pytest.mark.proves("I7", "I8", "I9", "I12", "I14", "I15", "I16", "I18", "I19", "I20", "I21", "I24")
@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
@pytest.mark.parametrize(
    "kind", [pytest.param("postgresql+asyncpg", marks=pytest.mark.server), "sqlite threads"]
)
async def test_a_case(case: Case, kind: str, engine: Any, tmp_path: Path) -> None:
    """A workflow ends with its outcome and its history, and no promise is broken."""

    def make_store(clock: VirtualClock) -> Store:
        if kind.startswith("sqlite"):
            return store_of(engine, clock=clock)
        return FreshStore(binding_of(engine), schema=SCHEMA, notify=False, clock=clock)

    calm = await play(case, make_store)
    assert calm.outcome == case.outcome
    assert told(calm.histories[RUN]) == lines(case.history)
    assert calm.violations == []


@outlast.step
async def add(number: int) -> int:
    """One more."""
    return number + 1


@outlast.workflow
async def relay(number: int) -> int:
    """Waits between its steps, so that another worker may go on."""
    for name in ("first", "second", "third"):
        number = await add(number)
        number += await outlast.wait_for_signal(name, int)
    return await add(number)


@pytest.mark.server
@pytest.mark.proves("I5", "I14", "C-27")
@pytest.mark.parametrize("kind", ["postgresql+asyncpg", "postgresql+psycopg threads"])
async def test_workers_of_both_kinds_work_on_the_same_runs(kind: str, engine: Any) -> None:
    """A run goes from a plain worker to one on SQLAlchemy and back, and then both share many."""
    async with (
        PostgresStore(direct(), schema=SCHEMA) as plain,
        store_of(engine, schema=SCHEMA) as lent,
    ):
        await wipe(plain.database)
        for number, store in enumerate((plain, lent, plain)):
            async with outlast.App(store, workflows=[relay], name=f"worker {number}") as app:
                if number == 0:
                    await app.start(relay(0), id="relay")
                await app.get("relay").signal(("first", "second", "third")[number], 10)
                if number == 2:
                    assert await app.get("relay").result(timeout=60) == 34
                else:
                    await until(app, "relay", steps=number + 2)
        async with (
            outlast.App(plain, workflows=[relay], name="plain", concurrency=8) as one,
            outlast.App(lent, workflows=[relay], name="lent", concurrency=8) as other,
        ):
            ids = [f"r-{number}" for number in range(30)]
            for number, id in enumerate(ids):
                await (one, other)[number % 2].start(relay(number), id=id, here=False)
            for number, id in enumerate(ids):
                for name in ("first", "second", "third"):
                    await (other, one)[number % 2].get(id).signal(name, 1)
            found = [await one.get(id).result(timeout=60) for id in ids]
            assert found == [number + 7 for number in range(30)]


async def until(app: outlast.App, run_id: str, *, steps: int) -> None:
    """Wait for a run to wait, with so many steps done."""
    while True:
        since = app.store.notifier.wakeups
        run = await app.get(run_id).status()
        done = [e for e in await app.get(run_id).history() if e.type == "step.completed"]
        if run.status is Status.WAITING and len(done) == steps:
            return
        await app.store.notifier.wait(app.store.clock, 0.05, since=since)
