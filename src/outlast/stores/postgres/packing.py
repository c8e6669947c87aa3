"""Values as parameters. What every commit has travels as arrays, one element per commit or event,
which the driver writes in binary; what only some have is in parts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET

from outlast.model.claim import Claim
from outlast.model.commit import Commit, Creation
from outlast.model.decision import parks
from outlast.model.event import Event
from outlast.model.inbox import Send
from outlast.model.run import TERMINAL, Change
from outlast.model.task import Task
from outlast.model.times import EPOCH, to_micros
from outlast.stores.postgres.parts import (
    Blobs,
    finishes_doc,
    parts_of,
    place_of,
    send_doc,
    task_doc,
    text,
)
from outlast.stores.postgres.rows import quote, quote_or_none

CREATES, UPSERT, REPLACE, FORCE, CARRY, RELEASE, REOPENS = 1, 2, 4, 8, 16, 32, 64
SETS_RUNNABLE_AT, SETS_WAIT_KIND, SETS_CURRENT_STEP, HAS_PARTS = 128, 256, 512, 1024
PLAIN, PLAIN_BIRTH, STEP = 2048, 4096, 8192


def pack_commits(commits: Sequence[Commit], *, atomic: bool) -> tuple[Any, ...]:
    """The parameters of `commit`, after the time."""
    blobs = Blobs()
    lives: list[tuple[Event, ...]] = [commit.events for commit in commits]
    docs = [parts_of(commit, blobs, lives) for commit in commits]
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
        for life, own in enumerate(lives, 1)
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
"""What a column of `_head` holds most often: None, but for `seen`."""

_EVENT_DEFAULTS = (*[None] * 4, 1, *[None] * 5)
"""The same for events, but for `version`."""


def _sparse(
    columns: Iterable[tuple[Any, ...]], defaults: tuple[Any, ...], size: int
) -> Iterable[tuple[Any, ...] | None]:
    """Many columns hold the same in all of a batch, and the driver is slow with each element, and
    with an array at all."""
    if not size:
        return [None] * len(defaults)
    return [
        None if column.count(default) == size else column
        for column, default in zip(columns, defaults, strict=True)
    ]


def pack_sends(
    sends: Sequence[Send], finishes: Sequence[Claim], keeps: Sequence[Claim]
) -> tuple[Any, ...]:
    """The parameters of `send`, after the time."""
    blobs = Blobs()
    items = [{"i": i, **send_doc(send, blobs)} for i, send in enumerate(sends, 1)]
    return text(items), text(finishes_doc(finishes, keeps)), blobs


def pack_tasks(tasks: Sequence[Task]) -> tuple[Any, ...]:
    """The last parameters of `enqueue`."""
    blobs = Blobs()
    return text([task_doc(task, blobs) for task in tasks]), blobs


def pack_claims(claims: Sequence[Claim]) -> tuple[Any, ...]:
    """The last parameters of `renew` and `release`: claims on runs, then claims on tasks."""
    # Sorted, so that two who wait for locks never wait for each other.
    runs = sorted((c.run_id, quote(c.uid), c.token) for c in claims if c.task_id is None)
    tasks = sorted((place_of(c), c.token) for c in claims if c.task_id is not None)
    return (
        *(zip(*runs, strict=True) if runs else [()] * 3),
        *(zip(*tasks, strict=True) if tasks else [()] * 2),
    )


# -- commits --------------------------------------------------------------------------------------


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
_SAID, _BEGUN = {"birth", "details"}, {"birth", "hold"}


def _plain(commit: Commit, doc: dict[str, Any] | None, touched: set[str]) -> int:
    """Whether it touches its own run only, and nobody else of the batch does: if the run is there,
    and if it is not."""
    if commit.force or commit.creation is Creation.REPLACE or commit.run_id in touched:
        return 0
    if doc is None:
        return PLAIN | STEP * _is_step(commit)
    flags = PLAIN * (doc.keys() <= _SAID and "marks" not in doc.get("details", ()))
    if commit.create is not None and doc.keys() <= _BEGUN:
        ends = commit.create.status.terminal or (commit.change or _NOTHING).status in TERMINAL
        flags |= PLAIN_BIRTH * (not ends)
    return flags


def _is_step(commit: Commit) -> bool:
    """Whether it changes no column that an index has, unless it changes the status: most do not."""
    change = commit.change or _NOTHING
    return not commit.release and change.runnable_at is UNSET and change.workflow is UNSET


def _set_text(value: Any) -> str | None:
    return None if value is UNSET or value is None else quote(value)
