"""Claim: the exclusive, expiring right to advance a run or to do a task. Worker: a process that holds claims.

The lease (`expires_at`) says when another owner may take over. The `token`, which grows with every
claim, fences a superseded owner. An owner whose lease has expired may still write until another owner
claims.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from outlast.errors import InvalidValue
from outlast.model.run import Run
from outlast.model.times import EPOCH

MAX_LEASE = timedelta(days=1)


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Owner, subject and expiry. A claim on a run has no `task_id`."""

    owner: str
    token: int
    claimed_at: datetime
    expires_at: datetime | None = None
    run_id: str = ""
    uid: str = ""
    task_id: str | None = None
    queue: str | None = None

    def is_expired(self, now: datetime) -> bool:
        """Whether another owner may take over. A claim without a lease never expires."""
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
    """A claim made atomically with the creation of a run: owner, and lease in seconds."""

    owner: str
    ttl: float


def check_ttl(ttl: float | None) -> None:
    """Raise for a lease that is not positive, or longer than a crashed owner may block a run."""
    if ttl is None:
        return
    given: object = ttl
    if not isinstance(given, int | float) or not 0 < ttl <= MAX_LEASE.total_seconds():
        raise InvalidValue(
            f"a lease of {ttl!r} s is not possible: use more than 0 and at most "
            f"{MAX_LEASE.total_seconds():.0f} s, and renew it"
        )


LISTED_FOR = timedelta(days=1)
"""How long a worker without heartbeats is listed."""


class Worker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a heartbeat. `owner` is the owner of its claims: its name and a part that is unique
    to the process. `code` is the hash of its workflows' code. `runs` and `tasks` are how many it
    holds, `troubles` the runs that are stuck there, and why.

    The store sets the times: `started_at` of the first heartbeat, `seen_at` of the last, and `until`
    when the next is due. A worker past that time has crashed, or cannot reach the store.
    """

    owner: str
    host: str = ""
    pid: int = 0
    version: str = ""
    code: str = ""
    workflows: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    runs: int = 0
    tasks: int = 0
    troubles: dict[str, str] = {}

    started_at: datetime = EPOCH
    seen_at: datetime = EPOCH
    until: datetime = EPOCH

    def is_alive(self, now: datetime) -> bool:
        """Whether its next heartbeat is not overdue."""
        return now < self.until
