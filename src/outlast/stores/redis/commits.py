"""A commit as commit.lua reads it: one map, in which what the commit does not have is not there."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from outlast.model.commit import Commit, Creation, Start
from outlast.model.decision import parks
from outlast.model.ids import root_of
from outlast.stores.redis.keys import Layout
from outlast.stores.redis.packing import (
    Packed,
    abroad,
    blob,
    due_score,
    lease,
    micros,
    pack_activity,
    pack_claim,
    pack_dead,
    pack_entry,
    pack_events,
    pack_send,
    pack_task,
    stamp,
)
from outlast.stores.redis.records import pack_change, pack_run


def pack_commit(commit: Commit, layout: Layout, part: int) -> Packed:
    """The map of a commit to a run of partition `part`."""
    packed: Packed = {"run": commit.run_id, "id": commit.id, "seen": str(commit.seen)}
    if commit.uid is not None:
        packed["uid"] = commit.uid
    if commit.expected is not None:
        packed["expected"] = str(commit.expected)
    if commit.revision is not None:
        packed["revision"] = str(commit.revision)
    if commit.token is not None:
        packed["token"] = str(commit.token)
    if commit.force:
        packed["force"] = True
    if commit.reopens:
        packed["reopens"] = True
    if commit.carry_inbox:
        packed["carry"] = True
    if commit.carry_tree:
        packed["carry_tree"] = True
    if commit.release:
        packed["release"] = True
    if parks(commit.change):
        packed["parks"] = True
    if commit.create is not None:
        packed["fresh"] = pack_run(commit.create)
        packed["creation"] = commit.creation.value
    elif commit.creation is Creation.REPLACE:
        packed["creation"] = "replace"
    if commit.hold is not None:
        packed["hold"] = {"owner": commit.hold.owner, "lease": lease(commit.hold.ttl)}
    if commit.change is not None:
        packed["change"] = pack_change(commit.change)
    if commit.events:
        packed["events"] = pack_events(commit.events)
    found = _lists_of(commit)
    if any(found):
        for (name, encode), values in zip(_LISTS.items(), found, strict=True):
            if values:
                packed[name] = encode(values)
    if commit.sends:
        packed["sends"] = [pack_send(send, layout, part) for send in commit.sends]
    if commit.starts:
        packed["starts"] = [pack_start(start, layout, part) for start in commit.starts]
    if commit.facts:
        packed["root"] = root_of(commit.run_id)
    if commit.snapshot is not None:
        packed["snapshot"] = blob(commit.snapshot.pack())
    return packed


_LISTS: dict[str, Callable[[Any], list[Any]]] = {
    "folds": lambda folds: [str(number) for number in folds],
    "tasks": lambda tasks: [pack_task(task) for task in tasks],
    "dead": lambda dead: [pack_dead(one) for one in dead],
    "finishes": lambda claims: [pack_claim(claim) for claim in claims],
    "drops": list,
    "timers": lambda timers: [
        {"id": one.id, "at": micros(one.fire_at), "due": due_score(one.fire_at)} for one in timers
    ],
    "fired": list,
    "facts": lambda facts: [part for fact in facts for part in (fact.hash, blob(fact.data))],
    "entries": lambda entries: [
        part for one in entries for part in (stamp(one.timestamp), blob(pack_entry(one)))
    ],
    "activities": lambda states: [
        {"id": one.id, "bytes": blob(pack_activity(one))} for one in states
    ],
}
"""How the rarer parts of a commit are packed."""

_lists_of = attrgetter(*_LISTS)


def pack_start(start: Start, layout: Layout, part: int) -> Packed:
    """A child."""
    packed: Packed = {"fresh": pack_run(start.run), "events": pack_events(start.events)}
    return abroad("start", packed, start.run.id, to=layout.part_of(start.run.id), part=part)
