"""Task: a message in a queue: a worker is needed. Leased, never popped."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from outlast.model.claim import Claim
from outlast.model.ids import new_id
from outlast.model.times import EPOCH


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work for a worker. A task of a run has `run_id`, `uid` and the step's key.

    The smallest `priority` is served first. Tasks with the same `key` (a tenant, a customer) form a
    line, and lines take turns. `run_at` delays the task. `attempt` counts deliveries and is increased
    before the work starts, so that a task that crashes its worker is counted too.
    """

    id: str = msgspec.field(default_factory=new_id)
    queue: str = "default"
    kind: str = "step"
    name: str = ""
    run_id: str = ""
    uid: str = ""
    step: str = ""
    definition: str = ""
    input: Raw | None = None
    priority: int = 0
    run_at: datetime | None = None
    attempt: int = 0
    metadata: dict[str, str] = {}
    enqueued_at: datetime = EPOCH
    key: str = ""


class Delivery(Struct, frozen=True):
    """A task handed out, and the claim to finish, extend or return it."""

    task: Task
    claim: Claim


class DeadTask(Struct, frozen=True):
    """A task that is not retried any more, why, and since when."""

    task: Task
    reason: str
    died_at: datetime
