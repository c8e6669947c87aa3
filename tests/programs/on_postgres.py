"""One store on PostgreSQL for many cases: to connect takes longer than to run a case."""

from __future__ import annotations

from functools import cache

from outlast.ports.store import Store
from outlast.testing.virtual import VirtualClock
from tests.postgres.places import FreshStore, wipe
from tests.programs.runner import new_clock


class _Reused(FreshStore):
    """A store that stays connected, and is emptied whenever it is opened again."""

    async def open(self) -> None:
        if self.is_fresh:
            await wipe(self._session.database)
        else:
            await super().open()

    async def close(self) -> None:
        """It stays open for the next case; its connections end with the process."""


class Kept:
    """Makes a store for each case: always the same one, on the same clock."""

    @property
    def clock(self) -> VirtualClock:
        """The clock of all cases."""
        return _clock()

    def __call__(self, clock: VirtualClock) -> Store:
        return _store()


@cache
def _clock() -> VirtualClock:
    return new_clock()


@cache
def _store() -> _Reused:
    return _Reused(clock=_clock())
