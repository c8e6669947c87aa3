"""A process that gets a newer claim of a run that it drives goes on where it is, or begins again: it never
holds a claim for which nothing is done, and never throws away what has ended here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

import outlast
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.errors import Unavailable
from outlast.model.commit import Commit, Committed
from outlast.model.event import payload_of
from outlast.model.payloads import StepLost
from outlast.model.run import Change
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testing.virtual_clock import START
from outlast.testkit.wrapped_store import WrappedStore

T = TypeVar("T")


@outlast.workflow
async def listens() -> str:
    return await outlast.wait_for_signal("go", str)


class SlowAnswers(WrappedStore):
    """A store whose answer to the commit with which a run rests is late: meanwhile it gets a signal, and is
    claimed again."""

    met = False

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        answer = await call()
        if name == "commit" and args[0][0].release and not self.met:
            self.met = True
            run = await self.inner.get(args[0][0].run_id)
            await Client(self.inner, codec=JsonCodec()).get(run.id).signal("go", "now")
            while (await self.inner.get(run.id)).token == run.token:  # noqa: ASYNC110
                await asyncio.sleep(0)
            for _ in range(20):
                await asyncio.sleep(0)
        return answer


@pytest.mark.proves("I16", "I24")
async def test_a_run_that_is_claimed_again_before_it_is_known_to_rest_goes_on_at_once() -> None:
    """The claim is for a run that the drive has left: another drive begins, now and not after a lease."""
    clock = VirtualClock()
    store = SlowAnswers(MemoryStore(clock=clock))
    async with app(listens, store=store, clock=clock) as testing:
        run = await testing.start(listens(), id="r")
        assert await run.result() == "now"
        assert store.met
        assert clock.now() == START


begun: list[str] = []
LEASE = 30.0


class SlowClaims(WrappedStore):
    """A store that is away for two leases; then it hands runs out, and its answer takes longer than it takes
    to ask for renewal."""

    until = 0.0
    refused = 0

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        clock = self.clock
        if clock.monotonic() < self.until:
            raise Unavailable("the network is down")
        if name == "renew" and self.until and not self.refused:
            raise Unavailable("no connection yet")
        answer = await call()
        if name == "claim_runs" and answer and self.until and not self.refused:
            self.refused += 1
            await clock.sleep(LEASE / 6)
        return answer


@outlast.step
async def charges() -> str:
    begun.append("charged")
    await takes(1)
    hit()
    return "charged"


@outlast.workflow
async def orders() -> str:
    return await charges()


def nothing() -> None:
    """Nothing happens."""


hit: Callable[[], None] = nothing


@pytest.mark.proves("I4", "I10")
async def test_a_renewal_that_is_refused_because_of_an_own_claim_discards_nothing() -> None:
    """The store has given the run to this same process again, which hears of the refusal first."""
    global hit
    begun.clear()
    clock = VirtualClock()
    store = SlowClaims(MemoryStore(clock=clock))

    def away() -> None:
        store.until = clock.monotonic() + 2 * LEASE

    hit = away
    async with app(orders, store=store, clock=clock, lease=LEASE) as testing:
        run = await testing.start(orders(), id="r")
        assert await run.result() == "charged"
    assert store.refused
    assert begun == ["charged"]


class Changed(SlowClaims):
    """The same; the run is changed by another process before it is handed out, without delay."""

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if self.until and not self.refused:
            if name == "commit":
                raise Unavailable("no connection yet")
            if name == "claim_runs" and self.clock.monotonic() >= self.until:
                self.refused += 1
                change = Change(attributes={"by": "another"})
                [done] = await self.inner.commit([Commit(run_id="r", change=change, force=True)])
                assert isinstance(done, Committed)
        return await super().around(name, call, args, kwargs)


@pytest.mark.proves("I10")
async def test_a_drive_that_cannot_go_on_under_a_newer_claim_reports_what_it_has_lost() -> None:
    """The run is replayed, and what was under way counts as lost and not as a death."""
    global hit
    begun.clear()
    clock = VirtualClock()
    store = Changed(MemoryStore(clock=clock))

    def away() -> None:
        store.until = store.until or clock.monotonic() + 2 * LEASE

    hit = away
    async with app(orders, store=store, clock=clock, lease=LEASE) as testing:
        run = await testing.start(orders(), id="r")
        assert await run.result() == "charged"
    assert begun == ["charged", "charged"]
    payloads = [payload_of(event) for event in await store.inner.history("r")]
    assert [one.attempt for one in payloads if isinstance(one, StepLost)] == [1]


@outlast.step(transactional=True)
async def books() -> str:
    begun.append("booked")
    hit()
    return "booked"


class Transacting(MemoryStore):
    """A store with transactions, as far as a step that writes nothing else needs them."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Any, Store]]:
        yield None, self


@outlast.workflow
async def buys() -> list[str]:
    return [*await asyncio.gather(books(), charges())]


@pytest.mark.proves("I4", "I10")
async def test_a_transaction_of_the_run_itself_does_not_keep_its_drive_from_a_newer_claim() -> None:
    """The commit of a transactional step is the last that the store has got before it is away: the run was
    written to, and by nothing but this drive."""
    global hit
    begun.clear()
    clock = VirtualClock()
    store = SlowClaims(Transacting(clock=clock))

    def away() -> None:
        store.until = store.until or clock.monotonic() + 2 * LEASE

    hit = away
    async with app(buys, store=store, clock=clock, lease=LEASE) as testing:
        run = await testing.start(buys(), id="r")
        assert await run.result() == ["booked", "charged"]
    assert store.refused
    assert sorted(begun) == ["booked", "charged"]
