"""A COMMIT whose answer is lost: the worker looks, and does not pay again."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, event, make_url
from sqlalchemy.ext.asyncio import create_async_engine

import outlast
from outlast.contrib.sqlalchemy import store_of
from tests.stores.postgres.places import SCHEMA, ask, direct
from tests.unit.contrib.sqlalchemy import shop
from tests.unit.contrib.sqlalchemy.places import dispose, engine_of
from tests.unit.testkit.faults.proxy import Proxy

OWN = f"{SCHEMA}_lost"


@pytest.mark.server
@pytest.mark.proves("I9")
@pytest.mark.parametrize(
    "kind", ["postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg threads"]
)
async def test_a_commit_whose_answer_is_lost_is_found_out(kind: str) -> None:
    """The server has committed rows and completion, and the connection is cut before it can say so."""
    await ask(f"DROP SCHEMA IF EXISTS {OWN} CASCADE", url=direct())
    near = engine_of(kind)
    await shop.make_tables(near)
    proxy = Proxy(direct())
    driver, _, threads = kind.partition(" ")
    url = make_url(await proxy.start()).set(drivername=driver)
    engine: Any = create_engine(url) if threads else create_async_engine(url)
    commits: list[object] = []

    def cut(connection: object) -> None:
        commits.append(connection)
        if len(commits) == 1:
            proxy.lose_answer(b"COMMIT")

    buys = shop.workflow_for(engine)
    try:
        async with store_of(engine, schema=OWN) as store:
            # Statements of ours commit by themselves: this is the one of the step.
            event.listen(getattr(engine, "sync_engine", engine), "commit", cut)
            async with outlast.App(store, workflows=[buys], lease=1) as app:
                run = await app.start(buys("o", 7), id="o")
                assert await run.result(timeout=60) == 7
        assert await shop.booked(near) == [("o", -7), ("o", 7)]
        assert len(commits) == 1, "it was tried once"
    finally:
        await dispose(engine)
        await proxy.stop()
        await dispose(near)
