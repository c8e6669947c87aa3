"""App: which store it runs on is said by the user, imported when asked for, and never guessed."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import Closed, InvalidValue, Unavailable, WorkflowMisuse
from outlast.model.claim import ClaimedRun
from outlast.ports import Durability
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing import VirtualClock
from outlast.testkit.wrapped_store import WrappedStore
from outlast.urls import resolve


@pytest.mark.proves("D-04", "C-01")
def test_memory_is_never_chosen_for_the_user(tmp_path: Path) -> None:
    """An app has no default store. A file is durable; memory says that it is not, and has to be
    asked for by name."""
    assert inspect.signature(outlast.App).parameters["store"].default is inspect.Parameter.empty
    file = resolve(f"sqlite:///{tmp_path}/runs.db")
    assert isinstance(file, SqliteStore)
    assert file.durable
    assert file.durability is Durability.POWER_LOSS
    memory = resolve("memory:")
    assert isinstance(memory, MemoryStore)
    assert not memory.durable


@pytest.mark.proves("D-35", "M-21", "C-26")
async def test_two_apps_have_two_stores() -> None:
    """The store is given to the app; there is nothing global that a second app would share."""

    @outlast.workflow
    async def nothing() -> None:
        return None

    one, two = MemoryStore(), MemoryStore()
    async with outlast.App(one, workflows=[nothing]) as first, outlast.App(two) as second:
        run = await first.start(nothing(), id="r")
        await run.result()
        assert [r.id async for r in first.client.find()] == ["r"]
        assert [r.id async for r in second.client.find()] == []


@pytest.mark.proves("D-35", "M-22")
def test_an_adapter_is_imported_when_its_url_is_used() -> None:
    """`import outlast` loads no adapter; naming one loads that one alone."""
    code = (
        "import sys, outlast\n"
        "from outlast.urls import resolve\n"
        "loaded = lambda: sorted(m for m in sys.modules if m.startswith('outlast.stores.'))\n"
        "assert loaded() == [], loaded()\n"
        "resolve('memory:')\n"
        "assert not any('sqlite' in m for m in loaded()), loaded()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_store_that_the_user_made_stays_open() -> None:
    """The app closes the store that it opened by URL, and never one that it was given."""
    store = MemoryStore()
    async with outlast.App(store):
        pass
    assert await store.find_one("nobody") is None


class NoClaims(WrappedStore):
    """A store that hands out no runs while it is `away`."""

    away = True

    async def claim_runs(self, *args: Any, **kwargs: Any) -> list[ClaimedRun]:
        if self.away:
            raise Unavailable("away")
        return await self.inner.claim_runs(*args, **kwargs)


async def test_a_claim_error_is_shown_while_it_lasts() -> None:
    """`claim_error` says why this process takes up no runs, and is None again once it does."""
    clock = VirtualClock()
    async with NoClaims(MemoryStore(clock=clock)) as store, outlast.App(store) as app:
        await clock.sleep(60)
        assert isinstance(app.claim_error, Unavailable)
        store.away = False
        await clock.sleep(60)
        assert app.claim_error is None


@pytest.mark.parametrize("url", ["", "shop.db", "mysql://here", "sqlite"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    """The message lists what can be used."""
    with pytest.raises(InvalidValue, match="sqlite"):
        resolve(url)


async def test_a_workflow_has_to_be_registered() -> None:
    """Starting one that the app does not have says how to give it."""

    @outlast.workflow
    async def stranger() -> None:
        return None

    async with outlast.App("memory:") as app:
        with pytest.raises(WorkflowMisuse, match="workflows="):
            await app.start(stranger())


@outlast.workflow
async def _says_hello() -> str:
    return "hello"


async def test_an_app_is_used_on_the_loop_that_it_was_opened_on() -> None:
    """What it has in memory belongs to that loop: from another, each call is refused."""
    async with outlast.App("memory:", workflows=[_says_hello]) as app:
        run = await app.start(_says_hello())

        def elsewhere(call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
            with pytest.raises(Closed, match=r"open on another event loop.*outlast\.sync\.App"):
                asyncio.run(call())

        for call in (
            lambda: app.start(_says_hello()),
            run.result,
            lambda: run.signal("x"),
            lambda: app.get(run.id).status(),
        ):
            await asyncio.to_thread(elsewhere, call)
        assert await run.result(timeout=20) == "hello"
        assert await (await app.start(_says_hello())).result(timeout=20) == "hello"


async def test_an_app_that_is_open_is_not_opened_again() -> None:
    """The inner block would close it under the outer one. A closed one can be opened again."""
    app = outlast.App("memory:", workflows=[_says_hello])
    async with app:
        with pytest.raises(InvalidValue, match="open already"):
            await app.__aenter__()
        assert await (await app.start(_says_hello())).result(timeout=20) == "hello"
    async with app:
        assert await (await app.start(_says_hello())).result(timeout=20) == "hello"
