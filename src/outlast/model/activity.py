"""Activity: the state of one step execution, addressed by its own id alone."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct

from outlast.model.run import Status


class Activity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one activity. The last state saved wins."""

    id: str
    run_id: str
    name: str = ""
    status: Status = Status.PENDING
    input: Raw | None = None
    output: Raw | None = None
    error: str | None = None
    attempt: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
