"""Whether a commit may be written: decided under the run's lock, before anything is written.

::

    already done?  its id is the run's last commit      → Committed(again=True)
    exists?        no such run / the id is taken        → NotFound / RunExists
    same life?     another uid                          → Fenced
    still open?    the run has ended                    → RunClosed
    the owner?     a newer claim, or no token at all    → Fenced
    in order?      another sequence or revision         → Conflict
    repeated?      it replaces the life that it created → RunExists
    new?           an event id that is recorded         → DuplicateEvent
    still held?    a task finished under a lost claim   → Fenced

`refusal` is that decision as a pure function; stores that decide in Python call it, stores that
decide in SQL or Lua implement it, and the conformance kit holds all of them to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag

from msgspec import UNSET, Struct

from outlast.errors import Conflict, Fenced, NotFound, RunClosed, RunExists
from outlast.model.commit import Commit, Committed, Creation, Refusal
from outlast.model.run import TERMINAL, Change, Status


class Head(Struct, frozen=True, gc=False):
    """The columns of a run that the rules read."""

    uid: str
    status: Status
    sequence: int
    revision: int
    token: int
    commit_id: str


def refusal(commit: Commit, head: Head | None) -> Refusal | None:
    """Why `commit` cannot be written on top of `head` (None: there is no such run), or None.

    Duplicate event ids and lost `finishes` concern other rows and are checked by the
    store after this, still before it writes. The caller has already handled a commit whose id is
    ``head.commit_id``.
    """
    if head is None:
        if commit.create is None:
            return NotFound("run", commit.run_id)
        # A missing run is at 0 and unclaimed: a commit that expects more, or has the claim of a
        # deleted life, must not create it.
        head = Head(commit.create.uid, Status.PENDING, 0, 0, 0, "")
    elif commit.create is not None and commit.creation is Creation.NEW:
        return RunExists(commit.run_id, head.uid)
    if commit.uid is not None and commit.uid != head.uid:
        return _fenced(commit, head)
    replaces = commit.create is not None and commit.creation is Creation.REPLACE
    if head.status.terminal and commit.reopens and not replaces:
        return RunClosed(commit.run_id, head.status)
    if not commit.force and (head.token or commit.token is not None):
        if commit.token != head.token:
            return _fenced(commit, head)
    if commit.expected is not None and commit.expected != head.sequence:
        return Conflict(commit.run_id, expected=commit.expected, actual=head.sequence)
    if commit.revision is not None and commit.revision != head.revision:
        return Conflict(
            commit.run_id, expected=commit.revision, actual=head.revision, what="revision"
        )
    if replaces and commit.create is not None and commit.create.uid == head.uid and head.revision:
        # A life is created once: a replacement that finds its own life has happened before. To
        # repeat it would destroy what was written since.
        return RunExists(commit.run_id, head.uid)
    return None


def _fenced(commit: Commit, head: Head) -> Fenced:
    return Fenced(f"run {commit.run_id!r}", token=commit.token, current=head.token)


def again(commit: Commit, head: Head | None) -> Committed | None:
    """The outcome of a commit that is the run's last already: a retry after a lost response."""
    if head is None or head.commit_id != commit.id:
        return None
    return Committed(
        run_id=commit.run_id,
        uid=head.uid,
        sequence=head.sequence,
        revision=head.revision,
        token=head.token,
        again=True,
    )


def parks(change: Change | None) -> bool:
    """Whether a change sets when the run may be claimed next."""
    return change is not None and change.runnable_at is not UNSET


class WakeupKind(IntFlag):
    """What a wake-up is about."""

    RUNS = 1  # a run can be claimed, now or later
    TASKS = 2  # a task can be taken, now or later
    ENDS = 4  # a run has ended or is parked
    ANY = RUNS | TASKS | ENDS


_KINDS = tuple(map(WakeupKind, range(WakeupKind.ANY + 1)))
"""The flags by number: a lookup is faster than constructing an `IntFlag`."""

_RUNS, _TASKS, _ENDS = int(WakeupKind.RUNS), int(WakeupKind.TASKS), int(WakeupKind.ENDS)


def wakeup_kind_of(commits: Iterable[Commit]) -> WakeupKind:
    """Which wake-ups these commits cause; none if they only advance claimed runs."""
    kind = 0
    for commit in commits:
        kind |= _wakeup_kind_of(commit)
    return _KINDS[kind]


def _wakeup_kind_of(commit: Commit) -> int:
    change, kind = commit.change, 0
    # A history that a program writes through the store alone is created like a run, without `runnable_at`.
    is_free = commit.release or (
        commit.create is not None
        and commit.hold is None
        and (commit.create.runnable_at is not None or commit.carry_inbox)
    )
    if change is not None and change.runnable_at is not UNSET:
        is_free = change.runnable_at is not None
        kind |= _ENDS
    elif commit.release or (change is not None and change.status in TERMINAL):
        kind |= _ENDS
    if is_free or commit.sends or commit.starts:
        kind |= _RUNS
    if commit.tasks:
        kind |= _TASKS
    return kind
