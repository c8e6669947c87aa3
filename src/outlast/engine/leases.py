"""Leases: what a process holds for a time, renewed while it does and given up when in doubt.

A lease is renewed at every third of its time. If that cannot be confirmed until it has run out, by
the process's own monotonic clock, whoever holds it has to stop: somebody else may have it now, and
though the token keeps a late commit out, it cannot keep a step from acting on the world twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from outlast.errors import Closed, StoreFault, TryAgain
from outlast.model.claim import Claim
from outlast.ports.store import Store

log = logging.getLogger("outlast.engine")


class Lease:
    """One claim that is held here."""

    __slots__ = ("claim", "confirmed", "lost", "renewed")

    def __init__(
        self,
        claim: Claim,
        confirmed: float,
        lost: Callable[[], object],
        renewed: Callable[[], object],
    ) -> None:
        self.claim = claim
        self.confirmed = confirmed
        self.lost = lost
        self.renewed = renewed


class Leases:
    """All that one process holds."""

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._clock = store.clock
        self._seconds = seconds
        self._held: set[Lease] = set()
        self._any = asyncio.Event()

    def hold(
        self,
        claim: Claim,
        *,
        lost: Callable[[], object],
        renewed: Callable[[], object] = lambda: None,
    ) -> Lease:
        """Keep a claim that was got just now. `lost` is called when it is, or may be, another's;
        `renewed` each time that it is known not to be."""
        lease = Lease(claim, self._clock.monotonic(), lost, renewed)
        self._held.add(lease)
        self._any.set()
        return lease

    def drop(self, lease: Lease) -> None:
        """It is no longer needed."""
        self._held.discard(lease)
        if not self._held:
            self._any.clear()

    async def keep(self) -> None:
        """Renew for ever what is held."""
        pause = self._seconds / 3
        while True:
            await self._any.wait()
            await self._clock.sleep(pause)
            pause = self._seconds / (3 if await self._renew() else 12)

    async def _renew(self) -> bool:
        held, asked = list(self._held), self._clock.monotonic()
        try:
            claims = [lease.claim for lease in held]
            found = await self._store.renew(claims, self._seconds, timeout=self._seconds / 3)
        except (TryAgain, StoreFault, asyncio.CancelledError) as error:
            unless_meant()
            log.warning("renewing failed, trying again: %s", error)
            self._give_up_doubtful()
            return False
        except Closed:
            raise
        except Exception:
            log.exception("renewing failed in an unforeseen way, trying again")
            self._give_up_doubtful()
            return False
        for lease, claim in zip(held, found, strict=True):
            if lease not in self._held:
                continue  # over meanwhile
            if claim is None:
                self._lose(lease)
            else:
                lease.claim, lease.confirmed = claim, asked
                lease.renewed()
        return True

    def _give_up_doubtful(self) -> None:
        now = self._clock.monotonic()
        for lease in [one for one in self._held if now - one.confirmed >= self._seconds]:
            log.error("%s is given up: its lease was not renewed in time", lease.claim.subject)
            self._lose(lease)

    def _lose(self, lease: Lease) -> None:
        self.drop(lease)
        lease.lost()


def unless_meant() -> None:
    """A daemon that is cancelled ends. A call of the store that was cancelled somewhere inside is
    one that failed: if that ended the daemon, the engine would go on without it in silence."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
