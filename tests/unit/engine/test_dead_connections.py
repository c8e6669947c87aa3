"""A connection that has lost its other end: nobody answers, and nobody says so. Leases are renewed on
another one, so that whoever waits for ever keeps what it holds from everybody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

import outlast
from outlast.errors import TimedOut
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testkit.wrapped_store import WrappedStore

T = TypeVar("T")
LEASE = 30.0


class Deaf(WrappedStore):
    """A store whose `deaf` next calls of one kind are not answered."""

    what = ""
    deaf = 0
    endless = False
    """Whether somebody would have waited for ever."""

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if name == self.what and self.deaf > 0:
            self.deaf -= 1
            seconds = kwargs.get("timeout")
            self.endless = self.endless or seconds is None
            await self.clock.sleep(seconds or 0)
            raise TimedOut("nobody answers")
        return await call()


@outlast.step
async def work() -> str:
    return "worked"


@outlast.workflow
async def rests() -> str:
    await outlast.sleep(3600)
    return await work()


@outlast.workflow
async def listens() -> str:
    return str(await outlast.wait_for_signal("word"))


@outlast.workflow
async def has_a_child() -> str:
    return await outlast.child(rests(), id="child")


@pytest.mark.proves("I8")
@pytest.mark.parametrize(
    ("what", "workflow"),
    [("history", rests), ("inbox", listens), ("find_one", has_a_child)],
)
async def test_who_is_not_answered_asks_again(what: str, workflow: Any) -> None:
    """Every read under a lease has an end, and is tried again on another connection."""
    clock = VirtualClock()
    store = Deaf(MemoryStore(clock=clock))
    store.what = what
    workflows = (rests, listens, has_a_child)
    async with app(*workflows, store=store, clock=clock, lease=LEASE) as virtual:
        store.deaf = 2
        run = await virtual.start(workflow(), id="r")
        if workflow is listens:
            await run.signal("word", "worked")
        assert await run.result() == "worked"
    assert store.deaf == 0
    assert not store.endless


async def test_who_waits_for_a_result_waits_no_longer_than_they_said() -> None:
    """A store that does not answer is no reason to sit there: the look has an end, too."""
    clock = VirtualClock()
    store = Deaf(MemoryStore(clock=clock))
    async with app(listens, store=store, clock=clock, lease=LEASE) as virtual:
        run = await virtual.start(listens(), id="r")
        store.what, store.deaf = "find_one", 1
        with pytest.raises(TimeoutError):
            await run.result(timeout=5)
        assert store.deaf == 0
        assert not store.endless
        await run.signal("word", "hello")
        assert await run.result(timeout=5) == "hello"
