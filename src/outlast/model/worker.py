"""Worker: a process that drives runs or does tasks, as it tells of itself while it lives."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from outlast.model.times import EPOCH

REMEMBERED = timedelta(days=1)
"""How long a worker that fell silent is listed."""


class Worker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says of itself. `owner` is what stands in its claims: its name and something
    that makes each of its lives different. `code` is the hash of its workflows' code. `runs` and `tasks` are how many it holds, `troubles` the runs
    that are stuck there, and why.

    The store keeps the times: `started_at` is the first word, `seen_at` the last one, and `until`
    when the next one is due. Whoever has not spoken by then is dead, or cut off.
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
        """Whether its next word is not yet overdue."""
        return now < self.until
