"""Leases: the claims of this process, renewed while they are held.

::

    main loop ── hold, drop ──▶ held ◀── every third of a lease ── lease thread, with its own
        ◀──────── lost, renewed ──────────────────────────────────  loop and connection

So a step that blocks the main loop keeps its lease. A step that holds the interpreter lock blocks the lease thread
too: its lease expires, and its late commits are fenced.

A lease is renewed at every third of its time. If that is not confirmed before it expires, by the monotonic clock of
this process, it is *in doubt*: another process may have the claim. The token fences late commits, but cannot keep a
step from executing twice; so steps are cancelled and none starts. The claim is still renewed: one that has expired
and was not superseded is as good as before, and outcomes can be recorded under it. It is *lost* only when the store
says so.

::

    held ── not confirmed for a lease ──▶ in doubt ── renewed ──▶ held
      └────────────── superseded ──────────▶ lost ◀── superseded ──┘

If the lease thread ends unexpectedly, all leases are in doubt and a new thread starts; if there is none left, leases
are renewed on the main loop.

LeaseLossReporter: reports attempts that were cut off in a process that lives on.

The process that takes a run over cannot know whether the previous owner crashed or was only suspended, so it counts
each attempt that it finds open as an interruption. A process that lost its claim, or dropped the run because of an
error, sends a report to the run's inbox, however late: then these attempts do not count.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Raw

from outlast.engine.operations.step import LeaseLossReport
from outlast.engine.runner.loop_thread import LoopThread
from outlast.engine.runner.poll_loop import raise_if_cancelled
from outlast.errors import Busy, Closed, OutlastError, StoreFault, TryAgain, Unsupported
from outlast.model.claim import Claim
from outlast.model.json import to_json
from outlast.model.run_contents import Item, Send
from outlast.ports.clock import Backoff, SystemClock, hear
from outlast.ports.store import Store

log = logging.getLogger("outlast.engine")


class Lease:
    """One claim that this process holds."""

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
    """An object that works under a lease, and may get a newer one."""

    lease: Lease


class Leases:
    """All claims of one process, renewed between `open` and `close`.

    They are renewed on the main loop if the store has no sibling, and if time is virtual: a thread would make tests
    non-deterministic.
    """

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._clock = store.clock
        self._seconds = seconds
        self._lock = threading.Lock()
        # In the order of `hold`, so that a simulation can be repeated.
        self._held: dict[Lease, None] = {}
        self._any = asyncio.Event()
        self._is_open = False
        self._again: asyncio.TimerHandle | None = None
        self._beside: LoopThread | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._call: Callable[..., object] = _at_once
        self.on_renewed: Callable[[], object] = lambda: None
        """Called in the main loop each time leases were renewed."""

    async def open(self) -> None:
        """Start to renew. Opening twice is fine."""
        if not self._is_open:
            self._is_open = True
            self._begin()

    def _begin(self) -> None:
        sibling = self._store.sibling() if isinstance(self._clock, SystemClock) else None
        if sibling is not None:
            beside = LoopThread(
                lambda: self._keep_in_thread(sibling), "outlast-leases", on_end=self._ended
            )
            try:
                beside.start()
            except RuntimeError as error:  # the system has no thread left
                log.error("leases are renewed on the main loop: %s", error)
            else:
                self._beside, self._call = beside, beside.call
                return
        self._call = _at_once
        self._keeping = asyncio.create_task(self._keep_here())
        self._keeping.add_done_callback(self._kept_here)

    def _kept_here(self, keeping: asyncio.Task[None]) -> None:
        # Only the end of the whole loop cancels it.
        if self._keeping is keeping and not keeping.cancelled():
            log.error("the renewal of leases has ended: %r", keeping.exception())
            self._ended()

    def _ended(self) -> None:
        """Renewal has ended unexpectedly: all leases are in doubt. Start it again."""
        self._doubt_all()
        self._beside = self._keeping = None
        if self._is_open:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(self._seconds / 12, self._begin_again)

    def _begin_again(self) -> None:
        if self._is_open:
            self._doubt_all()  # leases that were added meanwhile
            self._begin()

    async def close(self) -> None:
        """Stop to renew. Closing twice is fine."""
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
        """Hold a claim that was requested at `asked`: the answer may take long, and the lease runs meanwhile. `lost` is
        called when another process has it, `doubted` when another may have it, `renewed` after each renewal; all in
        the main loop."""
        lease = Lease(claim, asked, lost, renewed, doubted)
        with self._lock:
            self._held[lease] = None
        self._any.set()
        return lease

    def drop(self, lease: Lease) -> bool:
        """Hold a lease no longer; whether it was held."""
        with self._lock:
            held = lease in self._held
            self._held.pop(lease, None)
        if not self._held:
            self._any.clear()
        return held

    def keeps(self, lease: Lease) -> bool:
        """Whether a lease is held here: it was neither dropped nor lost."""
        return lease in self._held

    def is_held(self, lease: Lease) -> bool:
        """Whether a lease has not expired, by the monotonic clock. A process that was suspended can check this before
        any callback; soon the lease is renewed or lost."""
        return self._clock.monotonic() - lease.confirmed < self._seconds

    def is_late(self, lease: Lease) -> bool:
        """Whether a renewal was missed, so that the lease expires soon or has expired."""
        return self._clock.monotonic() - lease.confirmed > 0.7 * self._seconds

    def held_by(self, holder: _Holder) -> Callable[[], bool]:
        """A function that returns whether the current lease of `holder` `is_held`."""
        monotonic, seconds = self._clock.monotonic, self._seconds
        return lambda: monotonic() - holder.lease.confirmed < seconds

    # -- on the main loop ---------------------------------------------------------------------

    async def _keep_here(self) -> None:
        pause = self._seconds / 3
        while True:
            await self._any.wait()
            await self._clock.sleep(pause)
            pause = self._seconds / (3 if await self._renew(self._store) else 12)

    # -- in the lease thread ------------------------------------------------------------------

    async def _keep_in_thread(self, sibling: Store) -> None:
        """As `_keep_here`. `hold` does not wake this thread, which would cost each run that starts: it checks at every
        third of a lease, so that no lease is held for longer without renewal."""
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
                # Not within the time of one renewal: connecting may take longer, and would never finish.
                await asyncio.wait([opening], timeout=self._seconds / 3)
                pause = self._seconds / (3 if await self._renew(sibling, opening) else 12)
        finally:
            if opening is not None:
                opening.cancel()
                await asyncio.wait([opening])
            await sibling.close()

    # -- in either ----------------------------------------------------------------------------

    async def _renew(self, store: Store, opening: asyncio.Task[None] | None = None) -> bool:
        with self._lock:
            held = list(self._held)
        asked = self._clock.monotonic()
        oldest = min((lease.confirmed for lease in held), default=asked)
        # A call that takes longer than the lease lasts would detect its expiry too late.
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
            # At exit the interpreter joins threads and starts no new ones.
            if "interpreter shutdown" not in str(error):
                log.exception("renewing failed unexpectedly, trying again")
            self._doubt_expired()
            return False
        raise_if_cancelled()  # a driver may swallow a cancellation, and `close` waits for this task
        all_renewed = True
        for lease, claim in zip(held, found, strict=True):
            if claim is None:
                continue
            if claim.expires_at is None or claim.expires_at != lease.claim.expires_at:
                lease.confirmed, lease.in_doubt = asked, False
                hear(self._clock, claim.expires_at, self._seconds, asked=asked)
            else:
                # This process still has the claim, but the run was locked, perhaps by a process that claims it.
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
            if lease in self._held:  # not dropped meanwhile
                lease.renewed()
        self.on_renewed()

    def _doubt_expired(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            held = list(self._held)
        expired = [one for one in held if now - one.confirmed >= self._seconds]
        self._doubt([one for one in expired if not one.in_doubt])

    def _doubt_all(self) -> None:
        """No lease is renewed any more."""
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


LOST = "lost"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""What keeps a process from renewing its lease may also keep it from reporting that for long."""

log = logging.getLogger("outlast.engine")


class LeaseLossReporter:
    """Sends lease-loss reports of this process. A call of the store may take `timeout_s` seconds."""

    def __init__(self, store: Store, timeout_s: float) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._reporting: set[asyncio.Task[None]] = set()

    def report(self, claim: Claim, report: LeaseLossReport) -> None:
        """Send a report in the background, and retry until it arrives."""
        if report.attempts or report.not_started:
            reporting = asyncio.create_task(self._report(claim, report))
            self._reporting.add(reporting)
            reporting.add_done_callback(self._reporting.discard)

    async def report_now(self, claim: Claim, report: LeaseLossReport) -> None:
        """Send a report now, and in the background if that fails."""
        if not (report.attempts or report.not_started):
            return
        if not await self._try(_send_of(claim, report)):
            self.report(claim, report)

    async def close(self) -> None:
        """Stop. Attempts that could not be reported count as interruptions."""
        reporting = list(self._reporting)
        for task in reporting:
            task.cancel()
        await asyncio.gather(*reporting, return_exceptions=True)

    async def _report(self, claim: Claim, report: LeaseLossReport) -> None:
        send, backoff = _send_of(claim, report), Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, factor=4)
        while not await self._try(send):
            await backoff.wait(self._store.clock)

    async def _try(self, send: Send) -> bool:
        """Whether the report was sent, or never can be."""
        try:
            [receipt] = await self._store.send([send], timeout=self._timeout_s)
        except (Closed, Unsupported):
            return True
        except (OutlastError, OSError) as error:
            log.debug("the lease-loss report for run %s was not sent: %s", send.run_id, error)
            return False
        return not isinstance(receipt, Busy)


def _send_of(claim: Claim, report: LeaseLossReport) -> Send:
    item = Item(
        kind=LOST,
        id=f"{LOST} {claim.task_id or ''} {claim.token}",
        data=Raw(to_json(report)),
        sender=claim.owner,
    )
    return Send(run_id=claim.run_id, uid=claim.uid, item=item)
