"""Ends a run from outside, whichever process has claimed it, and deletes trees of runs. None of their code runs.

The commit that ends a run asks its children to stop. Its history says which children it has, so the commit expects the
history that was read: if the run has advanced meanwhile, and may have started a child, the commit is refused and the
new events are read. A run that always advances faster is paused for a moment first.

Deleting a tree also ends its open runs, in one atomic step of the store. Runs outside of the tree that wait for one of
its runs, or were started by one, get a message in the same step. The histories of the open runs name them, so these are
read first, and the step is refused if an open run has advanced since, or another one has started: then that one is read
again. Nothing is written before that step, so a crash leaves all or nothing::

    delete ──▶ RunsOpen: a, b ──▶ read a, b ──▶ delete, a and b as they were read, with messages ──▶ done
                    ▲                                      │
                    └──────── one of them advanced ────────┘
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec import UNSET, UnsetType

from outlast.client.moved_runs import find_here, when_free
from outlast.engine.operations.child import cancel_child
from outlast.engine.replay.completion import child_outcome, parent_uid_in
from outlast.engine.replay.history_reset import open_children
from outlast.errors import Conflict, Fenced, NotFound, RunsOpen, Undecodable
from outlast.model.asks import ASKING, without_asks
from outlast.model.claim import ClaimOnCreate
from outlast.model.commit import Commit, Outcome
from outlast.model.event import Event, to_event
from outlast.model.ids import SEPARATOR
from outlast.model.payloads import Payload, WorkflowCancelled
from outlast.model.run import Attribute, Change, Run, Status
from outlast.model.run_contents import Send
from outlast.ports.store import Store

RACES = 3
"""How often a run may be faster than the commit that ends it."""
HOLD_UP_S = 5.0
"""For how long no worker claims a run that is being ended; it goes on if the process that ends it dies."""
ENDING = "ended from outside"
"""The owner of a run that is held up."""

Attempt = Callable[[Commit], Awaitable[Outcome]]
"""Writes a commit, patiently."""


async def terminated(store: Store, run_id: str, reason: str, attempt: Attempt) -> Outcome:
    """End a run as it is now, and tell its parent and its children; what became of that. One whose record
    cannot be read is ended all the same."""
    history: list[Event] = []
    uid = None
    races = 0
    while True:
        commit = await _termination(store, run_id, reason, history)
        if uid is not None and commit.uid != uid:  # another life: read all of it
            history.clear()
            commit = await _termination(store, run_id, reason, history)
        uid = commit.uid
        outcome = await attempt(commit)
        if not isinstance(outcome, Conflict | Fenced):  # fenced: it has continued as another life
            return outcome
        races += 1
        if races % RACES == 0:
            await hold_up(run_id, uid, attempt)


async def hold_up(run_id: str, uid: str | None, attempt: Attempt) -> None:
    """Claim a run by force for a moment, so that no worker goes on with it, whatever is sent to it."""
    await attempt(Commit(run_id=run_id, uid=uid, force=True, hold=ClaimOnCreate(ENDING, HOLD_UP_S)))


def outcome_sends(run: Run, history: Sequence[Event], end: Payload) -> list[Send]:
    """What runs learn of the end of another one: its parent, and the children that end with it."""
    sends = []
    if run.parent is not None:
        sends.append(child_outcome(run, end, parent_uid_in(history)))
    sends += [
        cancel_child(child.child_run_id, run.uid, "its parent has ended")
        for child in open_children(history).values()
        if not child.parent_close
    ]
    return sends


async def _termination(store: Store, run_id: str, reason: str, history: list[Event]) -> Commit:
    """The commit that ends a run with this history, to which what is new is added."""
    end = WorkflowCancelled(reason=reason)
    sends: list[Send] = []
    uid = None
    expected = None
    attributes: dict[str, Attribute] | UnsetType = UNSET
    with suppress(Undecodable):
        run = await find_here(store, run_id)
        uid = run.uid
        if ASKING in run.attributes:
            attributes = without_asks(run.attributes)
        history += await store.history(run_id, after=_last(history))
        # A history that is damaged may be shorter than the record says.
        expected = max(run.sequence, _last(history))
        sends = outcome_sends(run, history, end)
    return Commit(
        run_id=run_id,
        uid=uid,
        expected=expected,
        force=True,
        events=(to_event(end, run_id=run_id),),
        change=Change(
            status=Status.CANCELLED,
            error=reason,
            wait_kind=None,
            halt_data=None,
            attributes=attributes,
        ),
        sends=tuple(sends),
    )


def _last(history: list[Event]) -> int:
    return history[-1].sequence if history else 0


# -- deleting a tree --------------------------------------------------------------------------


async def delete_tree(
    store: Store, run_id: str, uid: str | None, *, force: bool, patience: float, attempt: Attempt
) -> tuple[bool, list[str]]:
    """Remove a run with its descendants; whether it was there, and which of them were open. `RunsOpen` if
    there are any, unless by `force`; `Busy` if the tree was locked for `patience` seconds."""
    clock = store.clock
    open_at: dict[str, str | None] = {}
    sends: dict[str, list[Send]] = {}
    races: Counter[str] = Counter()
    while True:
        remove = partial(
            store.delete,
            run_id,
            uid=uid,
            only_ended=True,
            open_at=open_at,
            sends=[send for one in sends.values() for send in one],
        )
        try:
            was_there = await when_free(clock, remove, clock.monotonic() + patience, patience)
            return was_there, list(open_at)
        except RunsOpen as refusal:
            if not force:
                raise
            for open in refusal.open:
                races[open] += 1
                if races[open] % RACES == 0:
                    await hold_up(open, None, attempt)
                open_at.pop(open, None)
                with suppress(NotFound):
                    open_at[open], sends[open] = await _seen(store, run_id, open)


async def _seen(store: Store, root: str, run_id: str) -> tuple[str | None, list[Send]]:
    """The last commit of an open run in a tree that is deleted, and what runs outside of the tree have to
    learn of its end. One whose record cannot be read is deleted as it is."""
    with suppress(Undecodable):
        run = await find_here(store, run_id)
        end = WorkflowCancelled(reason=f"deleted with {root!r}")
        sends = outcome_sends(run, await store.history(run_id), end)
        return run.commit_id, [send for send in sends if not _is_below(send.run_id, root)]
    return None, []


def _is_below(run_id: str, root: str) -> bool:
    return run_id == root or run_id.startswith(root + SEPARATOR)
