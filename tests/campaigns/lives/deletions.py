"""What becomes of a tree that is deleted, and of the runs around it: stories for every store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

import outlast
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.errors import ChildFailed, NotFound, RunsOpen, Unavailable
from outlast.model import Status
from outlast.ports import Store
from outlast.testing import VirtualClock, app
from outlast.testkit.wrapped_store import WrappedStore
from tests.campaigns.lives.asks import ASK_STORIES
from tests.campaigns.lives.stories import (
    LONG,
    STORIES,
    children_of,
    do,
    done,
    kid,
    settled,
    stays,
    two_lives,
)

T = TypeVar("T")
Hook = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class AroundDelete(WrappedStore):
    """A store whose deletions pass through a hook; it notes what else a client writes."""

    def __init__(self, inner: Store, hook: Hook) -> None:
        super().__init__(inner)
        self.hook = hook
        self.commits = 0

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        self.commits += name == "commit"
        if name != "delete":
            return await call()
        return await self.hook(call)  # type: ignore[no-any-return]


def deleter(store: Store, hook: Hook) -> tuple[Client, AroundDelete]:
    """A client whose deletions pass through a hook, and its store."""
    wrapped = AroundDelete(store, hook)
    return Client(wrapped, codec=JsonCodec()), wrapped


async def a_tree_is_deleted_when_it_has_ended(store: Store, clock: VirtualClock) -> None:
    """A tree in which something runs is not deleted unless by force. An abandoned child of
    an ended parent counts."""
    async with app(two_lives, kid, store=store, clock=clock) as opened:
        await opened.start(two_lives(1), id="p")
        await clock.sleep(LONG / 4)
        with pytest.raises(RunsOpen) as refusal:
            await opened.get("p").delete()
        assert len(refusal.value.open) == 3
        await opened.get("p").cancel()
        await settled(opened, "p")
        await clock.sleep(LONG / 4)
        with pytest.raises(RunsOpen, match="~1"):
            await opened.get("p").delete()
        assert await opened.get("p").delete(force=True)
        assert await children_of(opened, "p") == {}
        assert not await opened.get("p").delete(force=True)


async def who_waits_for_a_deleted_child_is_told(store: Store, clock: VirtualClock) -> None:
    """The parent of a child that is deleted by force gets its failure: it does not wait for ever."""
    async with app(waits_for_one, kid, store=store, clock=clock) as opened:
        await opened.start(waits_for_one(), id="p")
        await clock.sleep(1)
        (child,) = await children_of(opened, "p")
        await opened.get(child).delete(force=True)
        assert "deleted with" in await opened.get("p").result()


@outlast.workflow
async def waits_for_one() -> str:
    try:
        await kid("kid", LONG)
    except ChildFailed as failure:
        return failure.error
    return "never"


@outlast.workflow
async def has_outsiders() -> None:
    """Waits for children with ids of their own, which are not of its tree, and for one of its tree."""
    await asyncio.gather(
        outlast.child(stays("never"), id="cancelled"),
        outlast.child(stays("never"), id="abandoned", parent_close="abandon"),
        stays("never"),
    )


async def a_crash_before_the_deletion_changes_nothing(store: Store, clock: VirtualClock) -> None:
    """`delete(force=True)` writes nothing before the commit that ends and removes the tree: if the process
    dies before it, all runs of the tree go on, and end as if nothing had happened."""
    async with app(two_lives, kid, store=store, clock=clock) as opened:
        await opened.start(two_lives(1), id="p")
        await clock.sleep(LONG / 4)

        async def dies(call: Callable[[], Awaitable[Any]]) -> Any:
            if died:
                raise Unavailable("the process is dead")
            died.append(True)
            return await call()

        died: list[bool] = []
        client, wrapped = deleter(store, dies)
        with pytest.raises(Unavailable):
            await client.get("p").delete(force=True)
        assert wrapped.commits == 0
        assert await opened.get("p").result() == "cancelled 1 is back, abandoned 1 is back"
    assert done == {"cancelled 1": 1, "abandoned 1": 1}


async def a_crash_after_the_deletion_leaves_nothing_to_do(
    store: Store, clock: VirtualClock
) -> None:
    """The commit that removes a tree with open runs cancels children outside of it and leaves abandoned ones
    alone: a process that dies right after it has left nothing undone."""
    async with app(has_outsiders, stays, store=store, clock=clock) as opened:
        await opened.start(has_outsiders(), id="p")
        await clock.sleep(1)

        async def dies(call: Callable[[], Awaitable[Any]]) -> Any:
            await call()
            raise Unavailable("the process is dead")

        client, wrapped = deleter(store, dies)
        with pytest.raises(Unavailable):
            await client.get("p").delete(force=True)
        assert wrapped.commits == 0
        assert not await store.exists("p")
        assert [id for id in await children_of(opened, "p") if "~" in id] == []
        assert (await settled(opened, "cancelled")).status is Status.CANCELLED
        await clock.sleep(LONG)
        assert not (await opened.get("abandoned").status()).status.terminal


@outlast.workflow
async def begins_an_outsider_when_told() -> None:
    await outlast.wait_for_signal("go")
    await outlast.child(stays("never"), id="late")


async def a_child_that_begins_meanwhile_is_cancelled(store: Store, clock: VirtualClock) -> None:
    """A run may begin a child with an id of its own after its history was read and before it is deleted:
    that child is cancelled too."""
    async with app(begins_an_outsider_when_told, stays, store=store, clock=clock) as opened:
        await opened.start(begins_an_outsider_when_told(), id="p")
        calls: list[bool] = []

        async def goes_on(call: Callable[[], Awaitable[Any]]) -> Any:
            calls.append(True)
            if len(calls) == 2:  # the first has named the open runs
                await opened.get("p").signal("go")
                while not await store.exists("late"):
                    await clock.sleep(1)
            return await call()

        client, _ = deleter(store, goes_on)
        assert await client.get("p").delete(force=True)
        assert len(calls) == 3
        assert (await settled(opened, "late")).status is Status.CANCELLED


@outlast.workflow
async def never_rests() -> None:
    while True:
        await do("again")


async def a_run_that_is_always_faster_is_deleted(store: Store, clock: VirtualClock) -> None:
    """A run that writes more often than it can be read is held up for a moment, and deleted."""
    async with app(never_rests, store=store, clock=clock) as opened:
        await opened.start(never_rests(), id="p")

        async def goes_on(call: Callable[[], Awaitable[Any]]) -> Any:
            await clock.sleep(2.5)
            return await call()

        client, _ = deleter(store, goes_on)
        assert await client.get("p").delete(force=True)
        before = done["again"]
        await clock.sleep(LONG)
        assert done["again"] <= before + 1  # one that had begun
        with pytest.raises(NotFound):
            await opened.get("p").status()


ALL_STORIES = (
    *STORIES,
    *ASK_STORIES,
    a_tree_is_deleted_when_it_has_ended,
    who_waits_for_a_deleted_child_is_told,
    a_crash_before_the_deletion_changes_nothing,
    a_crash_after_the_deletion_leaves_nothing_to_do,
    a_child_that_begins_meanwhile_is_cancelled,
    a_run_that_is_always_faster_is_deleted,
)
