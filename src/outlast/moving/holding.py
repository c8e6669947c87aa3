"""Holding: what has come of a family is held until all of it has, however long that takes.

The hold is a lease like any other, and renewed while the mover lives. Of a mover that died it says how
long its runs wait for the next one: long where some of the family are missing, which would go on in
parts; not long where it came whole, for then nothing is amiss but that nobody has let go of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta

from outlast.errors import TryAgain
from outlast.model.claim import Claim
from outlast.model.commit import Committed
from outlast.model.run import Run
from outlast.ports.store import Store

PARTS_SECONDS = 600.0
WHOLE_SECONDS = 60.0
UNMARKED_SECONDS = 86_400.0
"""What has come is held this long until it is on record that it has: as long as a lease can be."""
MOVER = "move-"


class Holding:
    """What the one who brings a family holds of it."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._claims: list[Claim] = []
        self._renewed_at = store.clock.monotonic()

    async def keep(self, runs: Iterable[Run | Committed], seconds: float) -> None:
        """Hold runs that have come, and all that came before them, for as long as it takes."""
        new = [self._claim_on(run) for run in runs if not isinstance(run, Run) or is_held(run)]
        self._claims += new
        since = self._store.clock.monotonic() - self._renewed_at
        if since >= seconds / 3 or await self._is_old(new, seconds):
            await self._renew(seconds)

    async def shorten(self, seconds: float) -> None:
        """Hold what has come for so long only, from now on."""
        await self._renew(seconds)

    async def _is_old(self, claims: list[Claim], seconds: float) -> bool:
        """Whether another mover, who died, has held one of them for some time."""
        ends = [one.expires_at for one in claims if one.expires_at and one.owner != self._owner]
        return bool(ends) and min(ends) < await self._store.now() + timedelta(
            seconds=seconds * 2 / 3
        )

    async def _renew(self, seconds: float) -> None:
        asked = self._store.clock.monotonic()
        with suppress(TryAgain):  # the next run that comes is the next occasion
            found = await self._store.renew(self._claims, seconds)
            self._claims = [claim for claim in found if claim is not None]
            self._renewed_at = asked

    def _claim_on(self, run: Run | Committed) -> Claim:
        if isinstance(run, Run):
            return claim_on(run)
        now = self._store.clock.now()
        return Claim(
            owner=self._owner,
            token=run.token,
            claimed_at=now,
            expires_at=now,
            run_id=run.run_id,
            uid=run.uid,
        )


def is_held(run: Run) -> bool:
    """Whether somebody who brought a run here holds it still, because not all of its family came."""
    return run.owner is not None and run.owner.startswith(MOVER)


def claim_on(run: Run) -> Claim:
    """The claim that a mover, this one or another, has on a run that is held."""
    return Claim(
        owner=run.owner or MOVER,
        token=run.token,
        claimed_at=run.created_at,
        expires_at=run.claimed_until,
        run_id=run.id,
        uid=run.uid,
    )
