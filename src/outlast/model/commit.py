"""Commit: everything that becomes durable together, as one value. The only way to write a run.

`outlast.model.validation` rejects a commit that is invalid in itself; `outlast.model.commit_rules` decides
whether the store writes it on top of the run as it is.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import Struct

from outlast.errors import Busy, Refused
from outlast.model.claim import Claim, ClaimOnCreate
from outlast.model.event import Event
from outlast.model.ids import new_id
from outlast.model.run import Change, Run
from outlast.model.run_contents import Activity, DeadTask, Entry, Fact, Send, Snapshot, Task, Timer


class Creation(StrEnum):
    """What a commit that creates a run does when the id is taken."""

    NEW = "new"  # refused: RunExists
    UPSERT = "upsert"  # the record is ignored, and the commit applies to the existing run
    REPLACE = (
        "replace"  # the old life is deleted with its contents, and a new one starts; see `Commit`
    )


class Start(Struct, frozen=True):
    """A child to start with the commit of its parent. Idempotent: an existing child is left as it
    is."""

    run: Run
    events: tuple[Event, ...] = ()


class Commit(Struct, frozen=True, kw_only=True, gc=False):
    """One atomic write. It is created once, with an id, and every retry sends the same value.

    Which run, and under which conditions:

    - `run_id`; `uid` is the life that it is meant for (None: the current one).
    - `expected` is the last sequence that the writer knows; None lets the store number the events.
      `revision` is the same for the record: it grows with every commit.
    - `token` is the writer's claim. After the first claim of a run, a commit without the current
      token is refused; with `force` it revokes the claim instead (terminate, replace).

    What becomes durable:

    - `create` and `creation` start a life; `hold` claims it in the same commit, also an existing run
      with `force`. A life that replaces another keeps descendants that have not ended, or are being
      moved, and the facts of the tree; with `carry_tree` also those that have ended. A life that is
      created with a terminal status replaces the whole tree. With `carry_inbox` it takes over the
      inbox, the receipts of the last items (`RECEIPTS_CARRIED`) and of all that wait.
    - `events` are appended; `change` changes the record. A terminal status ends the run: its claim is
      released, its tasks and unfired timers are deleted, and later commits cannot add to it.
    - `consumes` are the numbers of inbox items that this commit consumes. `seen` is the last number
      that the owner has read: if a newer item waits, a commit that parks the run leaves it runnable
      and reports `still_runnable`. `release` releases the claim, unless the run is still runnable.
    - `starts` are children, `sends` go to inboxes of other runs, new children included (a run that has
      ended or does not exist is reported as undelivered), `tasks` go to queues. `finishes` removes
      tasks under their claims: a lost claim fences the whole commit. `drops` removes tasks by id, also
      while they are claimed. `dead` adds dead tasks of a run that is moved here.
    - `timers` are scheduled (an existing id is left as it is), `fired` are marked as fired.
    - `facts`, `entries`, `activities` and one `snapshot` are stored.
    """

    run_id: str
    id: str = msgspec.field(default_factory=new_id)
    uid: str | None = None
    expected: int | None = None
    revision: int | None = None
    token: int | None = None
    force: bool = False

    create: Run | None = None
    creation: Creation = Creation.NEW
    carry_inbox: bool = False
    carry_tree: bool = False
    hold: ClaimOnCreate | None = None
    events: tuple[Event, ...] = ()
    change: Change | None = None
    consumes: tuple[int, ...] = ()
    seen: int = 0
    release: bool = False
    sends: tuple[Send, ...] = ()
    starts: tuple[Start, ...] = ()
    tasks: tuple[Task, ...] = ()
    dead: tuple[DeadTask, ...] = ()
    finishes: tuple[Claim, ...] = ()
    drops: tuple[str, ...] = ()
    timers: tuple[Timer, ...] = ()
    fired: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    entries: tuple[Entry, ...] = ()
    activities: tuple[Activity, ...] = ()
    snapshot: Snapshot | None = None

    @property
    def reopens(self) -> bool:
        """Whether it adds to a run, so that an ended run refuses it. Audit lines, activities, facts and
        snapshots are accepted after the end."""
        return bool(
            self.events
            or self.change is not None
            or self.consumes
            or self.sends
            or self.starts
            or self.tasks
            or self.dead
            or self.timers
            or self.fired
            or self.hold
        )


class Committed(Struct, frozen=True, kw_only=True, gc=False):
    """The commit is durable. `again`: it was durable before this call; then `still_runnable`, `fired`
    and `undelivered` are not known."""

    run_id: str
    uid: str
    sequence: int
    revision: int
    token: int
    still_runnable: bool = False
    fired: tuple[str, ...] = ()
    undelivered: tuple[str, ...] = ()
    again: bool = False


Refusal = Refused | Busy
"""Why a commit was not written: an error as a value, ready to be raised."""

Outcome = Committed | Refusal
"""The result of one commit of a batch."""
