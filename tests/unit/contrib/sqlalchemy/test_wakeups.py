"""Who waits in this process is woken by the commit of a session, and by nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outlast.contrib.sqlalchemy import store_of
from outlast.contrib.sqlalchemy.transactions import WAITING
from outlast.model import Run
from tests.unit.contrib.sqlalchemy.places import fresh


@pytest.mark.proves("I24")
async def test_a_commit_sends_a_wakeup_and_the_end_of_a_savepoint_does_not(tmp_path: Path) -> None:
    """Nobody could see anything before the COMMIT, and with it they are told."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}")
    async with store_of(engine) as store, AsyncSession(engine) as session:
        before = store.notifier.wakeups
        async with session.begin():
            async with session.begin_nested():
                await store.on(session).save(Run(id="r", workflow="w"))
            assert store.notifier.wakeups == before
        assert store.notifier.wakeups > before
    await engine.dispose()


async def test_a_session_that_lives_long_gathers_no_listeners(tmp_path: Path) -> None:
    """One for each session, however often a store is put on it, and none for all sessions."""
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    scoped = scoped_session(sessionmaker(engine))
    async with store_of(engine) as store:
        before = store.notifier.wakeups
        for number in range(5):
            await store.on(scoped).save(Run(id=f"r-{number}", workflow="w"))
            scoped.commit()
        assert store.notifier.wakeups >= before + 5
        assert len(list(scoped().dispatch.after_commit)) == 1
        assert not list(Session(engine).dispatch.after_commit)
        assert WAITING not in scoped().info
    scoped.remove()
    engine.dispose()


@pytest.mark.proves("I12")
@pytest.mark.parametrize(
    "kind", ["sqlite threads", pytest.param("postgresql+psycopg threads", marks=pytest.mark.server)]
)
async def test_a_scope_is_the_session_of_the_caller(kind: str, tmp_path: Path) -> None:
    """A `scoped_session`, as Flask has one, is another session in each thread: what is started is part of
    the transaction of the thread that has asked for it."""
    async with fresh(kind, tmp_path) as store:
        scoped = scoped_session(sessionmaker(store.binding.engine))  # type: ignore[attr-defined]
        await store.on(scoped).save(Run(id="gone", workflow="w"))
        assert not await store.exists("gone")
        scoped.rollback()
        await store.on(scoped).save(Run(id="kept", workflow="w"))
        scoped.commit()
        assert await store.exists("kept")
        assert not await store.exists("gone")
        scoped.remove()


async def test_a_scope_in_a_loop(tmp_path: Path) -> None:
    """An `async_scoped_session` is the session of its scope."""
    async with fresh("sqlite+aiosqlite", tmp_path) as store:
        maker = async_sessionmaker(store.binding.loops)  # type: ignore[attr-defined]
        scoped = async_scoped_session(maker, scopefunc=asyncio.current_task)
        await store.on(scoped).save(Run(id="r", workflow="w"))
        await scoped.commit()
        assert await store.exists("r")
        await scoped.remove()
