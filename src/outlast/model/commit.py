"""Commit: everything that must become durable together, as one value. The only way to write a run.

What a store may answer is decided in `outlast.model.commit_rules`, what it must refuse unseen in
`outlast.model.validation`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import Struct

from outlast.errors import Busy, Refused
from outlast.model.claim import Claim, ClaimOnCreate
from outlast.model.event import Event
from outlast.model.ids import new_id
from outlast.model.inbox import Send
from outlast.model.run import Change, Run
from outlast.model.run_contents import Activity, Entry, Fact, Timer
from outlast.model.snapshot import Snapshot
from outlast.model.task import DeadTask, Task


class Creation(StrEnum):
    """What a commit that brings a record does when the id is taken."""

    NEW = "new"  # it is refused: RunExists
    UPSERT = "upsert"  # the record is ignored and the commit goes to the run that is there
    REPLACE = (
        "replace"  # the old life is deleted with all it owns, and a new one begins; see `Commit`
    )


class Start(Struct, frozen=True):
    """A child to begin with the commit of its parent. If it exists already, nothing happens, so
    that a parent may be replayed."""

    run: Run
    events: tuple[Event, ...] = ()


class Commit(Struct, frozen=True, kw_only=True, gc=False):
    """One atomic write. Made once, with an id of its own, and reused as it is on every retry.

    Which run, and under which conditions:

    - `run_id`; `uid` names the life it is meant for (None: whichever is there).
    - `expected` is the last sequence the writer knows; None lets the store number the events.
      `revision` is the same for the record: it grows with every commit.
    - `token` is the writer's claim. After the first claim of a run, a commit without the current
      token is refused; `force` takes the claim away instead (terminate, replace).

    What becomes durable:

    - `create` and `creation` begin a life; `hold` claims it in the same commit, which
      also works with `force` on a run that is there. A life that replaces
      another leaves descendants that have not ended, or are being moved, as they are, with the facts of
      the tree; those that have ended go, unless there is `carry_tree`. One that begins ended stands for
      the whole tree. With `carry_inbox` it has the inbox of the other one, and the receipts of its last
      items (`RECEIPTS_CARRIED`) and of all that wait.
    - `events` are appended; `change` alters the record. A terminal status ends the run: its claim
      is released, its tasks and unfired timers are dropped, and nothing can be added any more.
    - `consumes` are the numbers of inbox items that this commit consumes. `seen` is the last number
      the owner has looked at: if a newer item waits, a commit that parks the run leaves it
      runnable and says `still_runnable`. `release` gives the claim back, unless still runnable.
    - `starts` are children, `sends` go to other runs' inboxes, those of new children included (one that
      is gone or ended is reported, not an error), `tasks` go to queues. `finishes` removes tasks under their claims: a
      stale one fences the whole commit. `drops` removes tasks by id, whoever holds them. `dead` are
      tasks that died elsewhere: nobody is handed them unless they are brought back.
    - `timers` are scheduled (an id that exists is left alone), `fired` are marked as fired.
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
        """Whether it would add to a run, so that an ended run refuses it. Audit lines, activity
        states, facts and snapshots may still come after the end."""
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
    """The commit is durable. `again` says that it had been durable before this call; then
    `still_runnable`, `fired` and `undelivered`, which were told the first time, are not known."""

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
"""What became of one commit of a batch."""
