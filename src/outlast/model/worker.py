"""Worker: a process that drives runs or does tasks, as its heartbeats describe it."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from outlast.model.times import EPOCH

REMEMBERED = timedelta(days=1)
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
