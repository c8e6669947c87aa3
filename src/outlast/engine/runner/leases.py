"""Leases: what a process holds for a time, renewed while it does.

::

    main loop ── hold, drop ──▶ held ◀── every third of a lease ── a thread beside, with a loop
        ◀──────── lost, renewed ──────────────────────────────────  and a connection of its own

A step that blocks the main loop therefore keeps its lease. One that holds the interpreter itself
keeps the thread from working too: its lease runs out, and what it does then is fenced.

A lease is renewed at every third of its time. If that cannot be confirmed until it has run out, by
the process's own monotonic clock, it is *in doubt*: another process may have the claim, and though
the token keeps a late commit out, it cannot keep a step from acting on the world twice. So bodies
are stopped, and nothing begins. The claim is kept and still renewed: one that has expired and was not
superseded is as good as before, and what was done under it can be recorded. It is *lost* only when the
store says so.

::

    held ── not confirmed for a lease ──▶ in doubt ── renewed ──▶ held
      └────────────── superseded ──────────▶ lost ◀── superseded ──┘

Nothing goes on without renewal. If the thread ends unasked, all is in doubt, and another one begins;
if none can be had, leases are renewed on the main loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from outlast.engine.runner.loop_thread import LoopThread
from outlast.errors import Closed, StoreFault, TryAgain
from outlast.model.claim import Claim
from outlast.ports.clock import SystemClock, hear
from outlast.ports.store import Store

log = logging.getLogger("outlast.engine")


class Lease:
    """One claim that is held here."""

    __slots__ = ("claim", "confirmed", "doubted", "in_doubt", "lost", "renewed")

    def __init__(
        self,
        claim: Claim,
        confirmed: float,
        lost: Callable[[], object],
        renewed: Callable[[], object],
        doubted: Callable[[], object],
    ) -> None:
        self.claim = claim
        self.confirmed = confirmed
        self.in_doubt = False
        self.lost = lost
        self.renewed = renewed
        self.doubted = doubted


class _Holder(Protocol):
    """What works under a lease, and may get a newer one."""

    lease: Lease


class Leases:
    """All that one process holds, renewed between `open` and `close`.

    That is done on the main loop where the store has no sibling, and where time is virtual: a
    thread beside would be chance.
    """

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._clock = store.clock
        self._seconds = seconds
        self._lock = threading.Lock()
        # In the order in which they came, so that a simulation can be repeated.
        self._held: dict[Lease, None] = {}
        self._any = asyncio.Event()
        self._is_open = False
        self._again: asyncio.TimerHandle | None = None
        self._beside: LoopThread | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._call: Callable[..., object] = _at_once
        self.on_renewed: Callable[[], object] = lambda: None
        """Called in the main loop each time that leases were renewed."""

    async def open(self) -> None:
        """Begin to renew what is held. Opening twice is fine."""
        if not self._is_open:
            self._is_open = True
            self._begin()

    def _begin(self) -> None:
        sibling = self._store.sibling() if isinstance(self._clock, SystemClock) else None
        if sibling is not None:
            beside = LoopThread(
                lambda: self._keep_beside(sibling), "outlast-leases", ended=self._ended
            )
            try:
                beside.start()
            except RuntimeError as error:  # there is no room for another thread
                log.error("leases are renewed on the main loop: %s", error)
            else:
                self._beside, self._call = beside, beside.call
                return
        self._call = _at_once
        self._keeping = asyncio.create_task(self._keep_here())
        self._keeping.add_done_callback(self._kept_here)

    def _kept_here(self, keeping: asyncio.Task[None]) -> None:
        # Whoever cancels it means all that is going on in this loop.
        if self._keeping is keeping and not keeping.cancelled():
            log.error("the renewal of leases has ended: %r", keeping.exception())
            self._ended()

    def _ended(self) -> None:
        """Renewal has ended unasked: all is in doubt. Then begin again."""
        self._doubt_all()
        self._beside = self._keeping = None
        if self._is_open:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(self._seconds / 12, self._begin_again)

    def _begin_again(self) -> None:
        if self._is_open:
            self._doubt_all()  # what was held meanwhile
            self._begin()

    async def close(self) -> None:
        """Renew no more. Closing twice is fine."""
        self._is_open = False
        if self._again is not None:
            self._again.cancel()
        beside, self._beside = self._beside, None
        keeping, self._keeping = self._keeping, None
        if beside is not None:
            await beside.stop()
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    def hold(
        self,
        claim: Claim,
        *,
        asked: float,
        lost: Callable[[], object] = lambda: None,
        renewed: Callable[[], object] = lambda: None,
        doubted: Callable[[], object] = lambda: None,
    ) -> Lease:
        """Keep a claim that was `asked` for at that moment: an answer may be long on its way, and
        the lease runs meanwhile. `lost` is called when it is another's, `doubted` when it may be,
        `renewed` each time that it is known not to be; all in the main loop."""
        lease = Lease(claim, asked, lost, renewed, doubted)
        with self._lock:
            self._held[lease] = None
        self._any.set()
        return lease

    def drop(self, lease: Lease) -> bool:
        """It is no longer needed; whether it still was."""
        with self._lock:
            held = lease in self._held
            self._held.pop(lease, None)
        if not self._held:
            self._any.clear()
        return held

    def keeps(self, lease: Lease) -> bool:
        """Whether it is kept here: it was neither dropped nor lost."""
        return lease in self._held

    def is_held(self, lease: Lease) -> bool:
        """Whether it has not run out, by the monotonic clock. A process that stood still can ask
        this before it has been told anything; soon the lease is renewed, or lost."""
        return self._clock.monotonic() - lease.confirmed < self._seconds

    def is_late(self, lease: Lease) -> bool:
        """Whether a renewal was missed, so that it may run out soon or has."""
        return self._clock.monotonic() - lease.confirmed > 0.7 * self._seconds

    def held_by(self, holder: _Holder) -> Callable[[], bool]:
        """What tells whether the lease that `holder` has at that moment `is_held`."""
        monotonic, seconds = self._clock.monotonic, self._seconds
        return lambda: monotonic() - holder.lease.confirmed < seconds

    # -- on the main loop ---------------------------------------------------------------------

    async def _keep_here(self) -> None:
        pause = self._seconds / 3
        while True:
            await self._any.wait()
            await self._clock.sleep(pause)
            pause = self._seconds / (3 if await self._renew(self._store) else 12)

    # -- beside it ----------------------------------------------------------------------------

    async def _keep_beside(self, sibling: Store) -> None:
        """The same. Whoever holds something does not wake this thread, which would cost each run
        that begins: it looks at every third, so that nothing is held unrenewed for longer."""
        opening: asyncio.Task[None] | None = None
        pause = self._seconds / 3
        try:
            while True:
                await asyncio.sleep(pause)
                if not self._held:
                    pause = self._seconds / 3
                    continue
                if opening is None or _has_failed(opening):
                    opening = asyncio.create_task(sibling.open())
                # Not within the time of a renewal: it may take longer, and would never be done.
                await asyncio.wait([opening], timeout=self._seconds / 3)
                pause = self._seconds / (3 if await self._renew(sibling, opening) else 12)
        finally:
            if opening is not None:
                opening.cancel()
                await asyncio.wait([opening])
            await sibling.close()

    # -- either -------------------------------------------------------------------------------

    async def _renew(self, store: Store, opening: asyncio.Task[None] | None = None) -> bool:
        with self._lock:
            held = list(self._held)
        asked = self._clock.monotonic()
        oldest = min((lease.confirmed for lease in held), default=asked)
        # Whoever waits longer than the lease lasts would give it up too late.
        left = oldest + self._seconds - asked
        patience = min(max(left, self._seconds / 12), self._seconds / 3)
        try:
            found = await self._ask(store, [lease.claim for lease in held], patience, opening)
        except (TryAgain, StoreFault, asyncio.CancelledError) as error:
            raise_if_cancelled()
            log.warning("renewing failed, trying again: %s", error)
            self._doubt_expired()
            return False
        except Closed:
            raise
        except Exception as error:
            # A program that ends waits for steps in threads, and lends nobody a thread meanwhile.
            if "interpreter shutdown" not in str(error):
                log.exception("renewing failed in an unforeseen way, trying again")
            self._doubt_expired()
            return False
        all_renewed = True
        for lease, claim in zip(held, found, strict=True):
            if claim is None:
                continue
            if claim.expires_at is None or claim.expires_at != lease.claim.expires_at:
                lease.confirmed, lease.in_doubt = asked, False
                hear(self._clock, claim.expires_at, self._seconds, asked=asked)
            else:
                # It is still ours, but it was locked, maybe by somebody who is about to take it.
                all_renewed = False
            lease.claim = claim
        self._call(self._kept, [one for one, claim in zip(held, found, strict=True) if claim])
        self._lose([one for one, claim in zip(held, found, strict=True) if claim is None])
        self._doubt_expired()
        return all_renewed

    async def _ask(
        self,
        store: Store,
        claims: Sequence[Claim],
        patience: float,
        opening: asyncio.Task[None] | None,
    ) -> list[Claim | None]:
        if opening is not None:
            if not opening.done():
                raise TryAgain("there is no connection yet")
            if opening.cancelled():
                raise TryAgain("the connection was given up while it was made")
            opening.result()
        return await store.renew(claims, self._seconds, timeout=patience)

    def _kept(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if lease in self._held:  # not over meanwhile
                lease.renewed()
        self.on_renewed()

    def _doubt_expired(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            held = list(self._held)
        expired = [one for one in held if now - one.confirmed >= self._seconds]
        self._doubt([one for one in expired if not one.in_doubt])

    def _doubt_all(self) -> None:
        """Nothing renews any more."""
        with self._lock:
            held = list(self._held)
        for lease in held:
            lease.confirmed = -math.inf
        self._doubt(held)

    def _doubt(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            lease.in_doubt = True
            log.warning("%s is in doubt: its lease was not renewed in time", lease.claim.subject)
            self._call(lease.doubted)

    def _lose(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if self.drop(lease):
                self._call(lease.lost)


def _has_failed(opening: asyncio.Task[None]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


def _at_once(function: Callable[..., object], *args: object) -> None:
    function(*args)


def raise_if_cancelled() -> None:
    """A daemon that is cancelled ends. A call of the store that was cancelled somewhere inside is
    one that failed: if that ended the daemon, the engine would go on without it in silence."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
