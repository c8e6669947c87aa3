"""Commits as parameters of the function `commit`, and its rows as outcomes.

What each commit has is sent as arrays with one element per commit or event, which the driver encodes in
binary. What only some commits have is one JSON text (commit_contents.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from datetime import datetime
from operator import itemgetter
from typing import Any

from msgspec import UNSET

from outlast.errors import (
    Busy,
    Conflict,
    DuplicateEvent,
    Fenced,
    NotFound,
    RunClosed,
    RunExists,
    StoreFault,
)
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.commit_rules import parks
from outlast.model.event import Event
from outlast.model.run import TERMINAL, Change
from outlast.model.times import EPOCH, to_micros
from outlast.stores.postgres.commit_contents import Blobs, contents_of, text
from outlast.stores.postgres.rows import STATUS, Row, quote, quote_or_none, unquote
from outlast.stores.postgres.session import SessionStore

# Bits of `c_flags`, see functions/commit.sql.
CREATES, UPSERT, REPLACE, FORCE, CARRY, RELEASE, REOPENS = 1, 2, 4, 8, 16, 32, 64
SETS_RUNNABLE_AT, SETS_WAIT_KIND, SETS_CURRENT_STEP, HAS_PARTS = 128, 256, 512, 1024
PLAIN, PLAIN_CREATION, STEP = 2048, 4096, 8192


def pack_commits(commits: Sequence[Commit], *, atomic: bool) -> tuple[Any, ...]:
    """The parameters of `commit`, after the time."""
    blobs = Blobs()
    groups: list[tuple[Event, ...]] = [commit.events for commit in commits]
    docs = [contents_of(commit, blobs, groups) for commit in commits]
    touched = {send.run_id for commit in commits for send in commit.sends}
    heads = zip(
        *(_head(commit, doc, touched) for commit, doc in zip(commits, docs, strict=True)),
        strict=True,
    )
    events = [
        (
            life,
            position,
            quote(event.id),
            quote(str(event.type)),
            event.version,
            quote(event.step_name),
            None if event.timestamp == EPOCH else to_micros(event.timestamp),
            text(event.metadata) if event.metadata else None,
            bytes(event.data),
            None if event.output is None else bytes(event.output),
        )
        for life, own in enumerate(groups, 1)
        for position, event in enumerate(own, 1)
    ]
    return (
        atomic,
        list(touched) or None,
        *_sparse(heads, _HEAD_DEFAULTS, len(commits)),
        [len(commit.events) for commit in commits],
        *_sparse(zip(*events, strict=True), _EVENT_DEFAULTS, len(events)),
        text(docs) if any(docs) else "[]",
        blobs or None,
    )


_HEAD_DEFAULTS = (*[None] * 8, 0, *[None] * 5)
"""The most frequent value of each column of `_head`."""

_EVENT_DEFAULTS = (*[None] * 4, 1, *[None] * 5)
"""The same for the columns of an event."""


def _sparse(
    columns: Iterable[tuple[Any, ...]], defaults: tuple[Any, ...], size: int
) -> Iterable[tuple[Any, ...] | None]:
    """Send None for a column that has only its default: the driver is slow with arrays."""
    if not size:
        return [None] * len(defaults)
    return [
        None if column.count(default) == size else column
        for column, default in zip(columns, defaults, strict=True)
    ]


def _head(commit: Commit, doc: dict[str, Any] | None, touched: set[str]) -> tuple[Any, ...]:
    flags = (
        CREATES * (commit.create is not None)
        | UPSERT * (commit.creation is Creation.UPSERT)
        | REPLACE * (commit.creation is Creation.REPLACE)
        | FORCE * commit.force
        | CARRY * commit.carry_inbox
        | RELEASE * commit.release
        | REOPENS * commit.reopens
        | HAS_PARTS * (doc is not None)
        | _plain(commit, doc, touched)
    )
    change, changed = commit.change, _UNCHANGED
    if change is not None:
        flags |= (
            SETS_RUNNABLE_AT * parks(change)
            | SETS_WAIT_KIND * (change.wait_kind is not UNSET)
            | SETS_CURRENT_STEP * (change.current_step is not UNSET)
        )
        due = change.runnable_at
        changed = (
            None if change.status is UNSET else change.status.value,
            _set_text(change.workflow),
            _set_text(change.wait_kind),
            _set_text(change.current_step),
            to_micros(due) if isinstance(due, datetime) else None,
        )
    return (
        commit.run_id,
        commit.id,
        quote_or_none(commit.uid),
        None if commit.create is None else quote(commit.create.uid),
        commit.expected,
        commit.revision,
        commit.token,
        flags,
        commit.seen,
        *changed,
    )


_UNCHANGED: tuple[Any, ...] = (None,) * 5
_NOTHING = Change()
_UPDATES, _CREATES = {"new_run", "details"}, {"new_run", "claim"}


def _plain(commit: Commit, doc: dict[str, Any] | None, touched: set[str]) -> int:
    """The flags of a commit that touches only its own run, which no other commit of the batch touches: if
    the run exists, and if it does not."""
    if commit.force or commit.creation is Creation.REPLACE or commit.run_id in touched:
        return 0
    if doc is None:
        return PLAIN | STEP * _is_step(commit)
    flags = PLAIN * (doc.keys() <= _UPDATES and "hashes" not in doc.get("details", ()))
    if commit.create is not None and doc.keys() <= _CREATES:
        ends = commit.create.status.terminal or (commit.change or _NOTHING).status in TERMINAL
        flags |= PLAIN_CREATION * (not ends)
    return flags


def _is_step(commit: Commit) -> bool:
    """Whether it changes no indexed column, except perhaps the status. True for most commits."""
    change = commit.change or _NOTHING
    return not commit.release and change.runnable_at is UNSET and change.workflow is UNSET


def _set_text(value: Any) -> str | None:
    return None if value is UNSET or value is None else quote(value)


def to_outcome(commit: Commit, row: Row) -> Outcome:
    """The outcome of one commit."""
    _, verdict, uid, sequence, revision, token, detail, still_runnable, fired, undelivered = row
    run_id = commit.run_id
    match verdict:
        case "done" | "again":
            return Committed(
                run_id=run_id,
                uid=unquote(uid),
                sequence=sequence,
                revision=revision,
                token=token,
                still_runnable=still_runnable,
                fired=tuple(unquote(id) for id in fired or ()),
                undelivered=tuple(undelivered or ()),
                again=verdict == "again",
            )
        case "busy":
            return Busy(
                f"run {run_id!r}, or one that it sends to, is locked by another transaction"
            )
        case "held back":
            return Busy("not written: another commit of this atomic batch was refused")
        case "not found":
            return NotFound("run", run_id)
        case "exists":
            return RunExists(run_id, unquote(uid))
        case "fenced":
            return Fenced(f"run {run_id!r}", token=commit.token, current=token)
        case "closed":
            return RunClosed(run_id, STATUS[detail])
        case "conflict":
            return Conflict(run_id, expected=commit.expected or 0, actual=sequence)
        case "stale":
            return Conflict(run_id, expected=commit.revision or 0, actual=revision, what="revision")
        case "duplicate":
            return DuplicateEvent(run_id, unquote(detail), sequence)
        case "lost":
            claim = commit.finishes[int(detail) - 1]
            return Fenced(claim.subject, token=claim.token)
    raise StoreFault(f"the server returned the unknown verdict {verdict!r} on run {run_id!r}")


MAX_BATCH = 1000
"""Commits in one statement: limits how long the next statement waits."""

MAX_LOCK_WAIT_S = 1.0
"""One wait for a lock inside the database, which occupies a connection."""
_lock_wait: ContextVar[float] = ContextVar("outlast_lock_wait", default=0.0)


class PostgresCommit(SessionStore):
    """Writes commits."""

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        if not commits:
            await self._session.make_ready()
            return []
        for commit in commits:
            if commit.hold is not None:
                await self._session.register_owner(commit.hold.owner)
        step = len(commits) if atomic else MAX_BATCH
        written: list[Outcome] | None = None
        try:
            written = [
                outcome
                for start in range(0, len(commits), step)
                for outcome in await self._commit(
                    commits[start : start + step], atomic=atomic, timeout=timeout
                )
            ]
            return written
        finally:
            # Also after a cancellation or timeout: the commits may be written.
            self.announce(commits, written)

    async def _commit(
        self, commits: Sequence[Commit], *, atomic: bool, timeout: float | None
    ) -> list[Outcome]:
        name, wait = "commit", _lock_wait.get()
        packed = (*self._session.time, *pack_commits(commits, atomic=atomic))
        if wait > 0:
            # Of a batch only the receivers: a commit that is locked delays no other.
            ids = {send.run_id for commit in commits for send in commit.sends}
            if len(commits) == 1:
                ids.add(commits[0].run_id)
            name, packed = "commit_when_free", (*packed, list(ids), round(wait * 1000))
        found = await self._session.write(name, *packed, timeout=timeout)
        found.sort(key=itemgetter(0))
        return [to_outcome(commit, row) for commit, row in zip(commits, found, strict=True)]

    async def _commit_waiting(
        self, commits: Sequence[Commit], wait: float, timeout: float | None
    ) -> list[Outcome]:
        if timeout is not None:
            wait = min(wait, timeout / 2)  # a timeout of the call would leave its outcome unknown
        token = _lock_wait.set(min(wait, MAX_LOCK_WAIT_S))
        try:
            return await self.commit(commits, timeout=timeout)
        finally:
            _lock_wait.reset(token)
