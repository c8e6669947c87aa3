"""Envelopes: what a store acknowledges, it can read. A field that has the wrong type is refused first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from msgspec import Raw, Struct

from outlast.errors import UsageError
from outlast.model import (
    Activity,
    Change,
    Commit,
    Committed,
    Entry,
    Event,
    Item,
    Run,
    Send,
    Task,
    Timer,
)
from outlast.model.times import EPOCH
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import event, everything

ODD: tuple[Any, ...] = (
    None, 0, 7, -1, 1.5, float("nan"), True, False, 2**64, "", "text", "a\x00b", b"", b"{}",
    Raw(b""), Raw(b"{"), Raw(b"\xff"), Raw(b"7"), (), [], ["x"], {}, {"a": 1}, {"a": ["x"]},
    {1: "x"}, {"a": None}, {"a": "x"}, {"a": Raw(b"1")}, object(), str, EPOCH,
    datetime(2031, 1, 1),  # noqa: DTZ001 — that is what is wrong with it
)  # fmt: skip

FIXED = {"run_id", "id", "uid", "parent"}
"""Ids have rules, and tests, of their own."""

KEPT = {"type", "version", "step_name", "data", "output", "metadata"}
"""The fields of an event that a store keeps and does not set."""

CommitWith = Callable[[str, dict[str, Any]], Commit]
EVENT = "event"
PARTS: dict[str, tuple[Capability | None, type[Struct], CommitWith]] = {
    EVENT: (None, Event, lambda id, odd: Commit(run_id=id, events=(event(id, **odd),))),
    "run": (
        None,
        Run,
        lambda id, odd: Commit(run_id="new " + id, create=Run(**{"id": "new " + id, **odd})),
    ),
    "change": (None, Change, lambda id, odd: Commit(run_id=id, change=Change(**odd))),
    "item": (
        Capability.INBOX,
        Item,
        lambda id, odd: Commit(
            run_id=id, sends=(Send(run_id=id, item=Item(**{"kind": "signal", **odd})),)
        ),
    ),
    "task": (
        Capability.TASKS,
        Task,
        lambda id, odd: Commit(run_id=id, tasks=(Task(**{"id": "t", "run_id": id, **odd}),)),
    ),
    "timer": (
        Capability.TIMERS,
        Timer,
        lambda id, odd: Commit(
            run_id=id,
            timers=(Timer(**{"id": "t", "run_id": id, "fire_at": EPOCH, **odd}),),
        ),
    ),
    "entry": (
        Capability.ENTRIES,
        Entry,
        lambda id, odd: Commit(
            run_id=id,
            entries=(Entry(**{"run_id": id, "step_id": "s", "action": "a", **odd}),),
        ),
    ),
    "activity": (
        Capability.ACTIVITIES,
        Activity,
        lambda id, odd: Commit(
            run_id=id, activities=(Activity(**{"id": "a", "run_id": id, **odd}),)
        ),
    ),
}


class Envelopes(StoreContract):
    """Whatever stands in a field: refused with a typed error, or read back."""

    @pytest.mark.proves("K-15", "K-13", "I28")
    @pytest.mark.parametrize("part", PARTS)
    async def test_what_is_acknowledged_can_be_read(self, store: Store, part: str) -> None:
        """Any value in any field of a record is refused before it is written, or the store reads
        everything afterwards, and an event as it was written."""
        capability, type_of_part, commit_with = PARTS[part]
        if capability is not None and capability not in store.capabilities:
            pytest.skip(f"not declared: {capability}")
        for name in type_of_part.__struct_fields__:
            if name not in FIXED:
                written = await _written(store, name, commit_with)
                await everything(store, *written)
                for run_id, odd in written.items() if part == EVENT and name in KEPT else ():
                    (read,) = await store.history(run_id)
                    found = getattr(read, name)
                    assert (type(found), found) == (type(odd), odd)


async def _written(store: Store, name: str, commit_with: CommitWith) -> dict[str, object]:
    """What was acknowledged as the value of a field, by the run that has it."""
    written: dict[str, object] = {}
    own = [f"{name}-{n}" for n in range(len(ODD))]
    await store.commit([Commit(run_id=id, create=Run(id=id)) for id in own])
    for run_id, odd in zip(own, ODD, strict=True):
        try:
            (outcome,) = await store.commit([commit_with(run_id, {name: odd})])
        except UsageError:
            continue
        assert isinstance(outcome, Committed), (odd, outcome)
        written[outcome.run_id] = odd
    return written
