"""Frozen values without I/O: everything that crosses a port is one of these.

The package imports only `outlast.errors`, so a store or an engine can be written against it alone.
"""

from outlast.model.claim import Claim, ClaimOnCreate, Worker
from outlast.model.commit import Commit, Committed, Creation, Outcome, Start
from outlast.model.event import Event, EventType
from outlast.model.ids import new_id
from outlast.model.query import Page, RunQuery
from outlast.model.run import Change, Run, Status, WaitKind
from outlast.model.run_contents import (
    Activity,
    DeadTask,
    Delivery,
    Entry,
    Fact,
    Item,
    ItemKind,
    Progress,
    Receipt,
    Send,
    Snapshot,
    Task,
    Timer,
)
from outlast.model.times import NOW

__all__ = [
    "NOW",
    "Activity",
    "Change",
    "Claim",
    "ClaimOnCreate",
    "Commit",
    "Committed",
    "Creation",
    "DeadTask",
    "Delivery",
    "Entry",
    "Event",
    "EventType",
    "Fact",
    "Item",
    "ItemKind",
    "Outcome",
    "Page",
    "Progress",
    "Receipt",
    "Run",
    "RunQuery",
    "Send",
    "Snapshot",
    "Start",
    "Status",
    "Task",
    "Timer",
    "WaitKind",
    "Worker",
    "new_id",
]
