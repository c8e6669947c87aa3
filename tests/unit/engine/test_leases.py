"""Leases: renewed in time, and given up when that cannot be confirmed."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.codecs import JsonCodec
from outlast.engine.runner.leases import Leases
from outlast.engine.runner.poll_loop import PollLoop
from outlast.engine.steps.step_executor import StepContext, StepExecutor
from outlast.errors import StoreClosed, TryAgain
from outlast.model import Claim
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes

ended: list[str] = []


class Deaf(MemoryStore):
    """A store that cannot be reached for renewals while `silent`."""

    silent = False
    asked = 0

    async def renew(self, claims: Any, ttl: float, **options: Any) -> list[Claim | None]:
        self.asked += 1
        if self.silent:
            raise TryAgain("the network is down")
        return await super().renew(claims, ttl, **options)


@outlast.step
async def long() -> str:
    try:
        await takes(100)
    finally:
        ended.append(f"{outlast.step_info().attempt} after {int(clock.monotonic() - began)}")
    return "done"


@outlast.workflow
async def waits() -> str:
    return await long()


clock: VirtualClock
began: float


@pytest.fixture
def store() -> Deaf:
    global clock, began
    clock = VirtualClock()
    began = clock.monotonic()
    ended.clear()
    return Deaf(clock=clock)


@pytest.mark.proves("I4")
async def test_a_lease_is_renewed_at_every_third(store: Deaf) -> None:
    """So it never ends while somebody works under it."""
    async with app(waits, store=store, clock=clock, lease=30) as virtual:
        assert await (await virtual.start(waits())).result() == "done"
    assert store.asked in (9, 10)  # the last one is due when the step ends
    assert ended == ["1 after 100"]


@pytest.mark.proves("I4")
async def test_who_cannot_renew_stops_when_the_lease_ends(store: Deaf) -> None:
    """By its own clock: another process may have the run now."""
    async with app(waits, store=store, clock=clock, lease=30) as virtual:
        run = await virtual.start(waits())
        store.silent = True
        await clock.sleep(35)
        assert len(ended) == 1, "the step goes on without a lease"
        assert 30 <= int(ended[0].split()[-1]) <= 33
        store.silent = False
        assert await run.result() == "done"


async def test_a_short_silence_costs_nothing(store: Deaf) -> None:
    """Renewing is tried again until the lease has really run out."""
    async with app(waits, store=store, clock=clock, lease=30) as virtual:
        run = await virtual.start(waits())
        store.silent = True
        await clock.sleep(25)
        store.silent = False
        assert await run.result() == "done"
    assert ended == ["1 after 100"]


class Locked(MemoryStore):
    """A store in which somebody else has locked what is to be renewed: it stays as it was."""

    locked = False

    async def renew(self, claims: Any, ttl: float, **options: Any) -> list[Claim | None]:
        return list(claims) if self.locked else await super().renew(claims, ttl, **options)


@pytest.mark.proves("I5")
async def test_a_lease_that_was_not_renewed_is_not_taken_for_renewed() -> None:
    """What comes back as it was still runs out."""
    global clock, began
    clock = VirtualClock()
    began = clock.monotonic()
    ended.clear()
    store = Locked(clock=clock)
    async with app(waits, store=store, clock=clock, lease=30) as virtual:
        run = await virtual.start(waits())
        store.locked = True
        await clock.sleep(50)
        assert ended, "the step goes on without a lease"
        store.locked = False
        assert await run.result() == "done"


@outlast.step
async def short() -> int:
    ended.append("short")
    return 1


@pytest.mark.proves("I5", "I8")
async def test_nothing_begins_under_a_lease_that_has_run_out(store: Deaf) -> None:
    """A process that stood still waits until it knows whether the run is still its own."""
    leases = Leases(store, 30)
    lease = leases.hold(claim := Claim(owner="w", token=1, claimed_at=clock.now()), asked=began)
    await clock.sleep(31)
    assert not leases.is_held(lease)
    assert leases.keeps(lease)
    context = StepContext(
        run_id="r",
        uid=claim.uid,
        key="short",
        attempt=1,
        progress=None,
        report=lambda _: None,
        codec=JsonCodec(),
        lease_held=lambda: leases.is_held(lease),
    )
    attempt = asyncio.create_task(
        StepExecutor(JsonCodec(), clock).attempt(short.definition, context, (), {})
    )
    await clock.sleep(5)
    assert not ended
    lease.confirmed = clock.monotonic()  # it was renewed
    assert (await attempt).error is None
    assert ended == ["short"]


class Tardy(MemoryStore):
    """A store that takes longer to read a history than a lease lasts."""

    async def history(self, run_id: str, **options: Any) -> Any:
        await clock.sleep(50)
        return await super().history(run_id, **options)


@pytest.mark.proves("I24")
async def test_a_run_is_kept_while_its_history_is_read() -> None:
    """What is claimed is renewed from then on, and not only once it goes on."""
    global clock, began
    clock = VirtualClock()
    began = clock.monotonic()
    ended.clear()
    store = Tardy(clock=clock)
    async with app(store=store, clock=clock) as client:
        await client.start(waits(), id="r", here=False)
    async with app(waits, store=store, clock=clock, lease=30) as virtual:
        assert await virtual.get("r").result() == "done"
    assert len(ended) == 1


class Sibling(MemoryStore):
    """A connection whose first opening is cancelled somewhere inside, and which may be `shut`."""

    opened = 0
    shut = False

    async def open(self) -> None:
        self.opened += 1
        if self.opened == 1:
            raise asyncio.CancelledError
        await super().open()

    async def renew(self, claims: Any, ttl: float, **options: Any) -> list[Claim | None]:
        if self.shut:
            raise StoreClosed("it was closed under us")
        return list(claims)


class WithSibling(MemoryStore):
    """A store beside which leases are renewed on a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.beside = Sibling()

    def sibling(self) -> Sibling:
        return self.beside


class Swallowing(MemoryStore):
    """A store whose driver returns normally from a call that is cancelled, as psycopg may on Python 3.11."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    def sibling(self) -> None:  # type: ignore[override]
        return None

    async def renew(self, claims: Any, ttl: float, **options: Any) -> list[Claim | None]:
        self.asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        return list(claims)


@pytest.mark.proves("I4", "I30")
async def test_closing_ends_though_a_driver_swallows_the_cancellation() -> None:
    """The renewal task is cancelled once, and does not go on after the call returned."""
    store = Swallowing()
    leases = Leases(store, 0.03)
    await leases.open()
    leases.hold(
        Claim(owner="w", token=1, claimed_at=store.clock.now()), asked=store.clock.monotonic()
    )
    async with asyncio.timeout(30):
        await store.asked.wait()
        await leases.close()


@pytest.mark.proves("I30")
async def test_a_poll_loop_stops_though_a_driver_swallows_the_cancellation() -> None:
    """The same for what polls the store."""
    polled = asyncio.Event()

    async def poll() -> None:
        polled.set()
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()

    loop = PollLoop(MemoryStore(), "polling", timeout_s=1.0, log=logging.getLogger("outlast"))
    loop.start(poll)
    async with asyncio.timeout(30):
        await polled.wait()
        await loop.stop()


@pytest.mark.proves("I4")
async def test_leases_are_renewed_though_an_opening_was_cancelled() -> None:
    """The thread beside makes another connection, and does not end in silence."""
    store = WithSibling()
    leases = Leases(store, 3)
    await leases.open()
    renewed = asyncio.Event()
    claim = Claim(owner="w", token=1, claimed_at=store.clock.now())
    leases.hold(claim, asked=store.clock.monotonic(), renewed=renewed.set)
    async with asyncio.timeout(60):
        await renewed.wait()
    assert store.beside.opened == 2
    await leases.close()


@pytest.mark.proves("I4")
async def test_all_is_in_doubt_when_nothing_renews_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thread that has ended unasked says so, and what works under a lease stops; the claim is kept."""
    store = WithSibling()
    store.beside.opened, store.beside.shut = 1, True
    leases = Leases(store, 0.6)
    await leases.open()
    doubted = asyncio.Event()
    claim = Claim(owner="w", token=1, claimed_at=store.clock.now())
    # Asked for in a long while, so that it does not run out meanwhile.
    asked = store.clock.monotonic() + 3600
    lease = leases.hold(claim, asked=asked, doubted=doubted.set)
    async with asyncio.timeout(60):
        await doubted.wait()
    assert leases.keeps(lease)
    assert not leases.is_held(lease)
    assert "outlast-leases has ended" in caplog.text
    await leases.close()


class Fatal(BaseException):
    """What no daemon foresees."""


class Dying(Sibling):
    """A connection whose first use ends the thread that uses it."""

    opened = 1

    async def renew(self, claims: Any, ttl: float, **options: Any) -> list[Claim | None]:
        raise Fatal


class OnceDying(MemoryStore):
    """A store whose first sibling is fatal, and whose others are not."""

    def __init__(self) -> None:
        super().__init__()
        self.siblings: list[Sibling] = []

    def sibling(self) -> Sibling:
        sibling = Sibling() if self.siblings else Dying()
        sibling.opened = 1
        self.siblings.append(sibling)
        return sibling


async def _renewed(leases: Leases, store: MemoryStore) -> None:
    """Return when something that is held from now on was renewed."""
    renewed = asyncio.Event()
    claim = Claim(owner="w", token=2, claimed_at=store.clock.now())
    asked = store.clock.monotonic() + 3600
    lease = leases.hold(claim, asked=asked, renewed=renewed.set)
    async with asyncio.timeout(60):
        await renewed.wait()
    leases.drop(lease)


@pytest.mark.proves("I4")
async def test_a_thread_that_dies_is_followed_by_another(caplog: pytest.LogCaptureFixture) -> None:
    """What was held when it died is in doubt; what is held afterwards is renewed."""
    store = OnceDying()
    leases = Leases(store, 0.6)
    await leases.open()
    doubted = asyncio.Event()
    claim = Claim(owner="w", token=1, claimed_at=store.clock.now())
    leases.hold(claim, asked=store.clock.monotonic() + 3600, doubted=doubted.set)
    async with asyncio.timeout(60):
        await doubted.wait()
        while len(store.siblings) < 2:  # noqa: ASYNC110 - it begins in a moment
            await asyncio.sleep(0.01)
    assert "outlast-leases has ended: Fatal()" in caplog.text
    await _renewed(leases, store)
    await leases.close()


@pytest.mark.proves("I4")
async def test_without_room_for_a_thread_leases_are_renewed_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On the main loop, which is better than not at all."""

    class Store(OnceDying):
        async def renew(self, claims: Any, ttl: float, **options: Any) -> list[Claim | None]:
            return list(claims)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    store = Store()
    leases = Leases(store, 0.6)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        await leases.open()
    await _renewed(leases, store)
    assert "on the main loop" in caplog.text
    await leases.close()


TOUCHED = """
import asyncio, os, signal, sys, threading
import outlast

waiting = threading.Event()

@outlast.step
def presses() -> None:
    waiting.wait()
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(60)
    print("the program has waited", flush=True)

@outlast.workflow
async def waits() -> None:
    await presses()

async def main():
    async with outlast.App(f"sqlite:///{sys.argv[1]}", workflows=[waits], lease=3) as app:
        run = await app.start(waits())
        asyncio.get_running_loop().call_later(0.1, waiting.set)  # not while its thread is begun
        await run.result()

asyncio.new_event_loop().run_until_complete(main())
"""


def test_ctrl_c_on_a_loop_that_is_left_open_is_quiet(tmp_path: Path) -> None:
    """The program ends, and does not wait for a step in a thread; what renews its lease makes no words about
    that."""
    ended = subprocess.run(
        [sys.executable, "-c", TOUCHED, f"{tmp_path}/a.db"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ended.stdout == ""
    assert "KeyboardInterrupt" in ended.stderr
    assert "renewing failed" not in ended.stderr
