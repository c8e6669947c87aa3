"""Claim: the exclusive, expiring right to advance a run or to do a task.

The lease (`expires_at`) only says when others may take over; it is the `token`, which grows with
every claim and never goes back, that keeps a superseded owner from writing. An owner whose lease
has run out may still write as long as nobody has taken over.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from outlast.errors import InvalidValue
from outlast.model.run import Run

MAX_LEASE = timedelta(days=1)


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who owns what until when. A claim on a run has no `task_id`."""

    owner: str
    token: int
    claimed_at: datetime
    expires_at: datetime | None = None
    run_id: str = ""
    uid: str = ""
    task_id: str | None = None
    queue: str | None = None

    def is_expired(self, now: datetime) -> bool:
        """Whether others may take over. A claim without a lease never expires."""
        return self.expires_at is not None and now >= self.expires_at

    def is_owned_by(self, owner: str) -> bool:
        """Whether `owner` holds this claim."""
        return self.owner == owner

    @property
    def subject(self) -> str:
        """What is claimed, for messages."""
        return f"run {self.run_id!r}" if self.task_id is None else f"task {self.task_id!r}"


class ClaimedRun(Struct, frozen=True):
    """A claim together with the record as it was when the claim was taken."""

    claim: Claim
    run: Run


class ClaimOnCreate(Struct, frozen=True):
    """A wish to hold the run that a commit creates: owner, and lease in seconds."""

    owner: str
    ttl: float


def check_ttl(ttl: float | None) -> None:
    """Refuse a lease that is not positive, or longer than a dead owner should block others."""
    if ttl is None:
        return
    given: object = ttl
    if not isinstance(given, int | float) or not 0 < ttl <= MAX_LEASE.total_seconds():
        raise InvalidValue(
            f"a lease of {ttl!r} s is not possible: use more than 0 and at most "
            f"{MAX_LEASE.total_seconds():.0f} s, and renew it"
        )
