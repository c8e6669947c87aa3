"""Commits as arguments of the script, the keys that they touch, and the outcomes.

A commit is one msgpack map, as commit.lua reads it; absent fields have their default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from outlast.errors import (
    Busy,
    Conflict,
    DuplicateEvent,
    Fenced,
    NotFound,
    RunClosed,
    RunExists,
    StoreFault,
    Undecodable,
    UnknownOutcome,
)
from outlast.model.commit import Commit, Committed, Creation, Outcome, Refusal, Start
from outlast.model.commit_rules import parks
from outlast.model.ids import root_of
from outlast.model.run import TERMINAL, Run, Status
from outlast.stores.redis.delete import finish_or_leave
from outlast.stores.redis.keys import (
    CLAIM_INDEXES,
    TASKS,
    Layout,
    activity_name,
    of_run,
    timer_name,
)
from outlast.stores.redis.packing import (
    Packed,
    blob,
    due_score,
    for_partition,
    lease,
    micros,
    pack,
    pack_activity,
    pack_change,
    pack_claim,
    pack_dead,
    pack_entry,
    pack_events,
    pack_run,
    pack_send,
    pack_task,
    stamp,
)
from outlast.stores.redis.session import Call, Server

HISTORY = ("seq", "events", "event-ids")
BIRTH = ("idx:ids", "idx:created", "idx:workflow", *CLAIM_INDEXES)
FILES = ("idx:workflow", *(f"idx:status:{status.value}" for status in Status), *CLAIM_INDEXES)
MAX_COMMITS_PER_CALL = 25
"""Commits per call of the script: enough to share its cost, few enough not to block the server."""


def call_of(commits: Sequence[Commit], layout: Layout, *, atomic: bool) -> Call:
    """One call for commits of one partition."""
    part = layout.part_of(commits[0].run_id)
    names = [name for commit in commits for name in keys_of_commit(commit, layout, part)]
    packed = pack([pack_commit(commit, layout, part) for commit in commits])
    return Call("commit", part, names, [packed, b"1" if atomic else b"0"])


def keys_of_commit(commit: Commit, layout: Layout, part: int) -> list[str]:
    """The keys that a commit touches, as far as the caller knows them; the script asks for those that depend on
    data."""
    id = commit.run_id
    head = of_run(id, "")
    names = [head + "state", "idx:updated"]
    if commit.events:
        names += (head + "seq", head + "events", head + "event-ids")
    if commit.create is not None:
        names += _birth_of(commit.create)
    if commit.force or commit.hold is not None:
        names += ("token", *CLAIM_INDEXES)
    if commit.consumes or commit.release or parks(commit.change) or commit.carry_inbox:
        names += (head + "inbox", *CLAIM_INDEXES)
    change = commit.change
    if change is not None and (isinstance(change.status, Status) or change.workflow):
        # Which status it had is for the script to say.
        names += FILES
        if change.status in TERMINAL:
            names += ("idx:ended", head + "tasks", head + "timers")
    for send in commit.sends:
        if layout.part_of(send.run_id) == part:
            names += (of_run(send.run_id, what) for what in ("state", "inbox", "items"))
            names += CLAIM_INDEXES
    for start in commit.starts:
        if layout.part_of(start.run.id) == part:
            names += (of_run(start.run.id, what) for what in ("state", "inbox", "items"))
            names += _birth_of(start.run)
    return names + _parts_of(commit)


def _birth_of(run: Run) -> list[str]:
    names = [of_run(run.id, what) for what in HISTORY]
    names += (*BIRTH, f"idx:status:{run.status.value}")
    if run.parent is not None:
        names.append("idx:parent")
    if run.attributes:
        names.append("idx:attr")
    return names


def _parts_of(commit: Commit) -> list[str]:
    id = commit.run_id
    names: list[str] = []
    if commit.tasks or commit.dead or commit.finishes or commit.drops:
        names += (of_run(id, "tasks"), *TASKS)
    if commit.timers or commit.fired:
        names += ("timers:due", of_run(id, "timers"))
        names += (timer_name(id, timer.id) for timer in commit.timers)
        names += (timer_name(id, timer_id) for timer_id in commit.fired)
    if commit.facts:
        names.append(of_run(root_of(id), "facts"))
    if commit.entries:
        names.append(of_run(id, "entries"))
    if commit.snapshot is not None:
        names += (of_run(id, "snapshot"), "idx:snapshots")
    if commit.activities:
        names.append(of_run(id, "activities"))
        names += (activity_name(activity.id) for activity in commit.activities)
    return names


async def commit_all(
    server: Server, commits: Sequence[Commit], *, atomic: bool, timeout: float | None
) -> tuple[list[Outcome], set[int]]:
    """The outcome of each commit, in order, and the partitions whose outbox has entries."""
    layout = server.layout
    groups = [list(range(len(commits)))] if atomic else batches(commits, layout)
    calls = [call_of([commits[n] for n in group], layout, atomic=atomic) for group in groups]
    answers = await server.calls(calls, timeout=timeout)
    failed = [n for n, answer in enumerate(answers) if isinstance(answer, Exception)]
    if failed:
        cause = answers[failed[0]]
        error = server.fault(cause)
        # Redis refuses a script as a whole, but one that meets a key of a wrong type ends there.
        is_cut_off = type(error) in (Undecodable, StoreFault) and len(groups[failed[0]]) > 1
        if is_cut_off or len(failed) < len(answers):
            # Some may be written: the caller resolves each by its id.
            raise UnknownOutcome(f"a part of a batch was not written: {error}") from error
        raise error from cause
    outcomes: dict[int, Outcome] = {}
    posted = set()
    marked = []
    for group, call, (_, found, has_posted, roots) in zip(groups, calls, answers, strict=True):
        marked += [(call.part, root.decode()) for root in roots]
        for n, answer in zip(group, found, strict=True):
            outcomes[n] = to_outcome(commits[n], answer)
        if has_posted == b"1":
            posted.add(call.part)
    for outcome in outcomes.values():
        if isinstance(outcome, Committed):
            server.saw_token(outcome.token)
    for part, root in marked:
        await finish_or_leave(server, root, timeout=timeout)
        posted.add(part)
    return [outcomes[n] for n in range(len(commits))], posted


def batches(commits: Sequence[Commit], layout: Layout) -> list[list[int]]:
    """Which commits share a call, by position. A call costs more than a small commit. The decision on a commit must
    not depend on the write of another one."""
    groups: list[list[int]] = []
    open_groups: dict[int, list[int]] = {}
    for n, commit in enumerate(commits):
        part = layout.part_of(commit.run_id)
        if commit.starts or commit.finishes or commit.creation is Creation.REPLACE:
            groups.append([n])
            continue
        group = open_groups.get(part)
        if group is None or len(group) == MAX_COMMITS_PER_CALL:
            group = open_groups[part] = []
            groups.append(group)
        group.append(n)
    return groups


def to_outcome(commit: Commit, answer: list[Any]) -> Outcome:
    """The outcome for a result of the script."""
    what, *rest = answer
    if what in (b"ok", b"again"):
        uid, sequence, revision, token = rest[:4]
        written = Committed(
            run_id=commit.run_id,
            uid=uid.decode(),
            sequence=int(sequence),
            revision=int(revision),
            token=int(token),
            again=what == b"again",
        )
        if what == b"again" or (rest[4] == b"0" and not rest[5] and not rest[6]):
            return written
        return Committed(
            run_id=written.run_id,
            uid=written.uid,
            sequence=written.sequence,
            revision=written.revision,
            token=written.token,
            still_runnable=rest[4] == b"1",
            fired=tuple(id.decode() for id in rest[5]),
            undelivered=tuple(id.decode() for id in rest[6]),
        )
    return _refusal(commit, what.decode(), rest)


def _refusal(commit: Commit, what: str, rest: list[Any]) -> Refusal:
    id = commit.run_id
    match what:
        case "notfound":
            return NotFound("run", id)
        case "exists":
            return RunExists(id, rest[0].decode())
        case "fenced":
            return Fenced(f"run {id!r}", token=commit.token, current=int(rest[0]))
        case "closed":
            return RunClosed(id, Status(rest[0].decode()))
        case "conflict":
            kind = rest[0].decode()
            expected = commit.expected if kind == "sequence" else commit.revision
            return Conflict(id, expected=expected or 0, actual=int(rest[1]), what=kind)
        case "duplicate":
            return DuplicateEvent(id, rest[0].decode(), int(rest[1]))
        case "lost":
            claim = commit.finishes[int(rest[0]) - 1]
            return Fenced(claim.subject, token=claim.token)
        case _:
            return Busy("not written: another commit of this atomic batch was refused")


def saved_activities(
    commits: Sequence[Commit], outcomes: Sequence[Outcome]
) -> list[tuple[str, str]]:
    """Id and run of the activity states that were written."""
    return [
        (activity.id, commit.run_id)
        for commit, outcome in zip(commits, outcomes, strict=True)
        if isinstance(outcome, Committed)
        for activity in commit.activities
    ]


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
        packed["new_run"] = pack_run(commit.create)
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
    "consumes": lambda consumes: [str(number) for number in consumes],
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
"""How the rarer contents of a commit are packed."""

_lists_of = attrgetter(*_LISTS)


def pack_start(start: Start, layout: Layout, part: int) -> Packed:
    """A child."""
    packed: Packed = {"new_run": pack_run(start.run), "events": pack_events(start.events)}
    return for_partition("start", packed, start.run.id, to=layout.part_of(start.run.id), part=part)
