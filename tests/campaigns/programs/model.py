"""The model: what may be observed of a program, whatever goes wrong.

It knows the program and the ledger, and nothing of the engine: no import of it, no rule that is
copied from it. Each method states one promise and yields the ways in which it was not kept. Where
the answer depends on a race, every outcome of the race is allowed; where it depends on a fault, what
the faults that really struck can explain, and no more.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from tests.campaigns.programs.ledger import Body, FinalRun, Ledger, Observed, Recorded, Told
from tests.campaigns.programs.program import (
    LEASE,
    Ask,
    Block,
    Branch,
    Case,
    Child,
    Gather,
    Halt,
    Loop,
    Map,
    Node,
    Scope,
    Signal,
    Step,
    Timeout,
    Try,
    every_node,
)

ENDS = ("workflow.completed", "workflow.failed", "workflow.cancelled")
CANCELLED = "workflow.cancelled"
SHORT = 0.5 * LEASE
"""A store that is away for less than this costs no lease."""
MILLISECOND = 0.001
PATIENCE = 30.0
"""So many seconds a caller waits for what is not free, unless it says otherwise."""
LEAKS_CANCELS = sys.version_info < (3, 13)
"""Whether a task has one cancellation too many after a TaskGroup in it has failed: an `asyncio.timeout` around
that which comes to its end later cancels the task then, instead of raising TimeoutError. So asyncio itself does."""
MOST_DEATHS = 3
"""So many deaths of its process under a step count against the step."""


def violations(
    case: Case, ledger: Ledger, runs: dict[str, FinalRun], stuck: tuple[str, ...]
) -> list[str]:
    """Every promise that was not kept, in sentences."""
    model = _Model(case, ledger, runs, stuck)
    return [f"{rule.__name__}: {problem}" for rule in RULES for problem in rule(model)]


class _Model:
    def __init__(
        self, case: Case, ledger: Ledger, runs: dict[str, FinalRun], stuck: tuple[str, ...]
    ) -> None:
        self.case = case
        self.ledger = ledger
        self.runs = runs
        self.stuck = stuck
        self.bodies: dict[tuple[str, str], list[Body]] = defaultdict(list)
        self.undone: dict[str, list[Body]] = defaultdict(list)
        self._paths: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        for body in ledger.bodies:
            if body.undo:
                self.undone[body.uid].append(body)
            else:
                self.bodies[body.run_id, body.path].append(body)
                for run in (body.run_id, body.uid):
                    self._paths[run, body.key].append((body.tick, body.path))
        self.lives: dict[str, list[Recorded]] = defaultdict(list)
        for event in ledger.recorded:
            self.lives[event.uid].append(event)
        kinds = [kind for kind, _, _ in ledger.faults]
        self.deaths = kinds.count("dies before") + kinds.count("dies after")
        # A worker that was not answered does not know that it has a lease, and renews none.
        untold = "answer lost" in kinds
        self.silences = sum(
            kind == "stands still"
            or (kind == "away" and seconds > SHORT)
            or (kind == "busy" and seconds > SHORT and untold)
            for kind, _, seconds in ledger.faults
        )
        if any(_writes(node) for node in every_node(case)):
            # Who does not know whether a COMMIT happened leaves the run, and all that runs of it.
            self.silences += kinds.count("answer lost") + kinds.count("away")
        self.stills = kinds.count("stands still")
        self.reopens = len(self.acts("reopen"))
        # A queue is not away with its store: what a worker has lost it may get again, and lose again.
        leases = sum(int(seconds // LEASE) for kind, _, seconds in ledger.faults if kind == "away")
        self.repeats = self.deaths + self.silences + self.reopens + leases
        """How often a body may have been cut off, and made again, through no fault of its own."""
        self.delay = 2.5 * LEASE + sum(seconds for _, _, seconds in ledger.faults)
        """How long something may take that should happen at once."""

    def acts(self, *do: str) -> list[Told]:
        """What was done from outside, and was not refused."""
        return [one for one in self.ledger.told if one.do in do and one.error is None]

    def path_of(self, event: Recorded, key: str) -> str | None:
        """The path of the step that an event calls so. What a run was begun with was done in an
        earlier life of it."""
        path = self._path_at(event.uid, key, event.tick)
        if path is None and event.copied:
            sources = {f"fork-{told.value}": told.run_id for told in self.acts("fork")}
            source: str | None = event.run_id
            while path is None and source is not None:  # of a fork, the run that it was forked from
                path = self._path_at(source, key, event.tick)
                source = sources.get(source)
        return path

    def _path_at(self, run: str, key: str, tick: int) -> str | None:
        """The path that last had that key before: the next life of a run uses the key again."""
        before = [path for begun, path in self._paths.get((run, key), ()) if begun < tick]
        return before[-1] if before else None

    def is_stale(self, seen: Observed) -> bool:
        """Whether code of a life that was over ran in a worker that had stood still: it replays what it
        can read, and nothing of it is recorded."""
        end = self.end_of(seen.uid)
        return self.stills > 0 and end is not None and end.tick < seen.tick

    def node(self, path: str) -> Node | None:
        """The statement at a path."""
        return node_at(self.case, path)

    def end_of(self, uid: str) -> Recorded | None:
        """How a life ended, if it did: with an outcome, or by continuing as new."""
        for event in self.lives.get(uid, ()):
            if not event.copied and event.type in (*ENDS, "workflow.continued"):
                return event
        return None


# -- the promises ---------------------------------------------------------------------------------


def every_run_ends(model: _Model) -> Iterator[str]:
    """After the faults, with all that is waited for supplied, every run comes to its end."""
    yield from model.stuck


def histories_have_no_gap(model: _Model) -> Iterator[str]:
    """Events are numbered 1, 2, 3 …"""
    for run in model.runs.values():
        if run.sequences != tuple(range(1, len(run.sequences) + 1)):
            yield f"{run.id} has {run.sequences}"


def code_sees_what_it_did(model: _Model) -> Iterator[str]:
    """A gather gives what its branches gave."""
    yield from model.ledger.problems


def callers_get_plain_answers(model: _Model) -> Iterator[str]:
    """What is asked from outside is done, or refused for a reason that the caller can act on."""
    for told in model.ledger.told:
        name = (told.error or "").partition(":")[0]
        if name not in (
            "",
            "RunClosed",
            "NotFound",
            "InvalidValue",
            "UpdateFailed",
            "RunExists",
            "RunsOpen",
            "AlreadyAnswered",
            "AskClosed",
        ) and not _waits_for_a_cancelled_child(model, told):
            yield f"{told.do} of {told.run_id}: {told.error}"


def _waits_for_a_cancelled_child(model: _Model, told: Told) -> bool:
    """Whether a retry was refused as `Busy`, rightly: a child that was cancelled with its parent was not
    at its end when the caller's patience was, as it still undid what it had done."""
    if told.do != "retry" or not (told.error or "").startswith("Busy:") or told.done is None:
        return False
    for child in model.ledger.children:
        events = model.lives[child.uid]
        undoes = any(e.type == "compensation.started" and e.tick < told.done for e in events)
        end = model.end_of(child.uid)
        if any(e.run_id == told.run_id for e in model.lives[child.parent_uid]) and undoes:
            if _cancelled_by(model, child.uid, told.time + PATIENCE) and end is not None:
                if end.tick > told.done and end.time >= told.time + PATIENCE:
                    return True
    return False


def a_body_is_repeated_for_a_reason(model: _Model) -> Iterator[str]:
    """A body begins again after it raised, timed out, or was cut off by a fault, and never else."""
    for (run_id, path), bodies in model.bodies.items():
        node = model.node(path)
        by_life: dict[str, list[Body]] = defaultdict(list)
        for body in bodies:
            by_life[body.uid].append(body)
        for own in by_life.values():
            failed = sum(_failed(body, node) for body in own)
            if len(own) - 1 > failed + model.repeats and not _rolled_back(model, node):
                ends = [body.end for body in own]
                yield f"{path} of {run_id} began {len(own)} times, {ends}, {model.repeats} cuts"
            if isinstance(node, Step) and failed > node.attempts + model.repeats:
                yield f"{path} of {run_id} failed {failed} times, attempts={node.attempts}"
            if isinstance(node, Step) and node.at_most_once and len(own) > 1:
                yield f"{path} of {run_id} is at_most_once and began {len(own)} times"


def _failed(body: Body, node: Node | None) -> bool:
    timeout = node.timeout if isinstance(node, Step) else None
    lasted = body.ended_at - body.time + MILLISECOND  # of virtual time, in floats
    timed_out = timeout is not None and body.end == "cut" and lasted >= timeout
    return body.end == "raised" or timed_out


def _rolled_back(model: _Model, node: Node | None) -> bool:
    """Whether a body may have come to its end, and its transaction not."""
    kinds = ("busy", "away", "answer lost")
    return _writes(node) and any(kind in kinds for kind, _, _ in model.ledger.faults)


def _writes(node: Node | None) -> bool:
    return isinstance(node, Step) and node.transactional


def an_effect_and_its_record_are_one(model: _Model) -> Iterator[str]:
    """What a transactional step writes is there once if it is recorded as completed, and not at all if
    it has failed, whatever goes wrong."""
    effects = Counter(model.ledger.effects)
    for (run_id, uid, path), times in effects.items():
        if times > 1:
            yield f"{path} of {run_id} has its effect {times} times"
        if not any(body.end == "ok" and body.uid == uid for body in model.bodies[run_id, path]):
            yield f"{path} of {run_id} has an effect, and no body of it was done"
    completed = {(run_id, uid, path) for run_id, uid, path, _ in _completions(model)}
    for run_id, uid, path in completed:
        if _writes(model.node(path)) and not any(
            (run_id, life, path) in effects for life in _lives_of(model, run_id, uid)
        ):
            yield f"{path} of {run_id} is recorded as completed, and has no effect"
    for event in model.ledger.recorded:
        if event.type == "step.failed" and not event.copied:
            failed = json.loads(event.data)
            path = model.path_of(event, event.key) or ""
            if not failed["will_retry"] and (event.run_id, event.uid, path) in effects:
                yield f"{path} of {event.run_id} failed ({failed['error']}), and has its effect"


def _lives_of(model: _Model, run_id: str, uid: str) -> list[str]:
    """A life, and those from which it may have a result: a retry takes what came too late."""
    if not model.acts("retry", "fork"):
        return [uid]
    return [life for run, life, _ in model.ledger.effects if run == run_id] or [uid]


def a_recorded_step_never_runs_again(model: _Model) -> Iterator[str]:
    """Neither in its life, nor in the next one of a run that is retried and undid nothing."""
    branches = any(isinstance(node, Gather) for node in every_node(model.case))
    spawned = any(isinstance(n, Child) and n.wait != "now" for n in every_node(model.case))
    for run_id, uid, path, tick in _completions(model):
        for body in model.bodies[run_id, path]:
            if body.tick <= tick or model.stills:
                continue  # a worker may stand still just before it begins a body
            if _deleted(model, run_id, tick, body.tick):
                continue  # the run that has the id now is another
            if body.uid == uid:
                yield f"{path} of {run_id} is recorded and began again"
                continue
            end = model.end_of(uid)
            if end is None or end.tick > body.tick:
                yield f"{path} of {run_id} is recorded in a life that goes on, and began again"
            elif end.type == "workflow.completed" and not _redone(model):
                yield f"{path} of {run_id} is recorded in a life that completed, and began again"
            elif ":2" in path:
                continue  # a `finally` runs after a failure, and again after what failed was retried
            elif not (branches or spawned or _undid(model, uid) or _in_tree(model, run_id, uid)):
                yield f"{path} of {run_id} is recorded, nothing was undone, and it began again"


def a_child_is_not_begun_twice(model: _Model) -> Iterator[str]:
    """What a child has done is not done by another child of the same statement, unless the first one
    failed, was cancelled, or belongs to a run that undid what it did, or to a fork."""
    if model.undone or model.acts("fork"):
        return
    given_up = {
        event.run_id
        for event in model.ledger.recorded
        if event.type in ("workflow.failed", CANCELLED) and event.run_id != "r"
    }
    done: dict[str, str] = {}
    for run_id, _, path, _ in _completions(model):
        first = done.setdefault(path, run_id)
        # One with an id of its own does not show which runs it belongs to.
        over = bool(given_up) if first.startswith("own") else bool(given_up & {*_above(first)})
        if first != run_id and not over:
            yield f"{path} was done by {first} and again by {run_id}"


def _redone(model: _Model) -> bool:
    """Whether a run that had undone what it did was retried: then its children are begun again."""
    return bool(model.acts("retry", "fork")) and bool(model.undone)


def _deleted(model: _Model, run_id: str, since: int, until: int) -> bool:
    """Whether a run, or one above it, was deleted in that time."""
    above = {*_above(run_id)}
    return any(
        told.run_id in above and told.done is not None and since < told.done < until
        for told in model.acts("delete")
    )


def _undid(model: _Model, uid: str) -> bool:
    return any(event.type == "compensation.started" for event in model.lives[uid])


def _in_tree(model: _Model, run_id: str, uid: str) -> bool:
    """Whether it is a child that failed: a parent that is retried asks for it again."""
    end = model.end_of(uid)
    return run_id != "r" and end is not None and end.type != "workflow.completed"


def _completions(model: _Model) -> Iterator[tuple[str, str, str, int]]:
    """The steps and items that are recorded as completed: run, life, path, when."""
    for event in model.ledger.recorded:
        if event.copied:
            continue
        for key in _completed_keys(event):
            path = model.path_of(event, key)
            if path is not None:
                yield event.run_id, event.uid, path, event.tick


def _completed_keys(event: Recorded) -> list[str]:
    if event.type == "step.completed":
        return [event.key]
    if event.type == "map.progress":
        done = json.loads(event.data).get("completed", ())
        return [f"{event.key}[{index}]" for index in done]
    return []


def steps_have_their_outcome(model: _Model) -> Iterator[str]:
    """A step gives its own result, once a body of it has; it fails for the reason that its body or
    the faults had."""
    for seen in model.ledger.seen:
        node = model.node(seen.path)
        if not isinstance(node, Step) or seen.kind == "cancelled" or model.is_stale(seen):
            continue
        bodies = [
            body for (_, path), own in model.bodies.items() if path == seen.path for body in own
        ]
        if seen.kind == "value":
            if seen.value != seen.path:
                yield f"{seen.path} gave {seen.value!r}"
            elif not any(body.end == "ok" and body.ended < seen.tick for body in bodies):
                yield f"{seen.path} gave a result, and no body of it did"
            continue
        kind, why = seen.value
        raised = sum(body.end == "raised" for body in bodies)
        failed = sum(_failed(body, node) for body in bodies)
        if kind != "StepFailed":
            if not _too_late(model, seen.uid, seen.tick):
                yield f"{seen.path} raised {kind}: {why}"
        elif why in (node.error, "RuntimeError" if node.error != "Oops" else ""):
            # What is no Exception is not tried again.
            if not raised or (node.error == "Oops" and failed < node.attempts):
                yield f"{seen.path} failed after {failed} of {node.attempts} attempts"
        elif why == "StepTimeout":
            if node.timeout is None or node.timeout > node.seconds:
                yield f"{seen.path} timed out"
        elif why == "Interrupted":
            if not _may_be_interrupted(model, node, bodies):
                yield f"{seen.path} counts as interrupted, after {model.deaths} deaths"
        else:
            yield f"{seen.path} failed: {why}"


def _too_late(model: _Model, uid: str, tick: int) -> bool:
    """Whether a life has begun to undo, so that its code may do nothing any more."""
    return any(one.type == "compensation.started" for one in model.lives[uid])


def _may_be_interrupted(model: _Model, node: Step, bodies: list[Body]) -> bool:
    cut = model.deaths + model.silences
    if _rolled_back(model, node):
        return True  # its worker does not know whether it was committed: for it, that is the end
    if node.at_most_once:
        if model.acts("retry") and any(body.end != "raised" for body in bodies):
            return True  # it ran beside what failed, and the next life does not know how it ended
        if model.acts("fork"):
            return True  # it ran beside the step that was forked from: how it ended came later
        # A worker that is stopped waits 5 s for what runs, if the store takes what it records.
        absent = any(kind in ("busy", "away") for kind, _, _ in model.ledger.faults)
        return cut > 0 or (model.reopens > 0 and (node.seconds > 4 or absent))
    return cut >= MOST_DEATHS


def maps_have_their_outcome(model: _Model) -> Iterator[str]:
    """Results are in the order of the items; failures are tolerated as often as is said."""
    for seen in model.ledger.seen:
        node = model.node(seen.path)
        if not isinstance(node, Map) or seen.path.endswith("]"):
            continue
        if seen.kind == "value":
            own = [f"{seen.path}[{i}]" for i in range(node.items)]
            wrong = [
                one for one, wanted in zip(seen.value, own, strict=False)
                if one not in (wanted, "failed", None)
            ]  # fmt: skip
            failed, missing = seen.value.count("failed"), seen.value.count(None)
            if len(seen.value) != node.items or wrong:
                yield f"{seen.path} gave {seen.value}"
            if failed > node.tolerate or (failed > len(node.fails) and not model.repeats):
                yield f"{seen.path} gave {failed} failures, tolerate={node.tolerate}"
            if missing and (node.enough is None or node.items - failed - missing < node.enough):
                yield f"{seen.path} gave {seen.value}, enough={node.enough}"
        elif seen.kind == "raised" and seen.value[0] == "MapFailed":
            cut = model.deaths + model.silences
            if len(node.fails) <= node.tolerate and cut < MOST_DEATHS:
                yield f"{seen.path} failed: {seen.value[1]}"


def replays_see_the_same(model: _Model) -> Iterator[str]:
    """Whatever a step, a map or a child gave once, it gives again in every replay."""
    known: dict[tuple[str, str], Any] = {}
    for seen in model.ledger.seen:
        node = model.node(seen.path)
        if isinstance(node, Map) and node.enough is not None:
            continue  # which items were enough may be decided anew, until it is recorded
        if model.is_stale(seen):
            continue
        if seen.kind == "value" and isinstance(node, Step | Map | Child):
            if known.setdefault((seen.uid, seen.path), seen.value) != seen.value:
                first = known[seen.uid, seen.path]
                yield f"{seen.path} gave {first!r} and then {seen.value!r}"


def runs_end_as_their_code_did(model: _Model) -> Iterator[str]:
    """A completed run has what its code returned, a failed one an error that its code raised, a
    cancelled one a request."""
    asked = {told.run_id for told in model.acts("cancel", "terminate")}
    # A fork begins with the history of its source, and so with a cancel that is in it.
    cancelled = asked | {one.run_id for one in model.ledger.recorded if one.type == CANCELLED}
    asked |= {f"fork-{told.value}" for told in model.acts("fork") if told.run_id in cancelled}
    for run in model.runs.values():
        ends = [
            seen for seen in model.ledger.seen
            if seen.uid == run.uid and re.search(r"@\d+$", seen.path)
        ]  # fmt: skip
        if run.status == "completed":
            values = [seen.value for seen in ends if seen.kind == "returned"]
            # Code may run ahead of what is durable, and be done again: one of them was recorded.
            if run.result not in values:
                yield f"{run.id} completed with {run.result}, its code returned {values}"
        elif run.status == "failed":
            if not any(seen.kind == "raised" for seen in ends):
                yield f"{run.id} failed ({run.error}), its code did not raise"
        elif run.status == "cancelled" and run.parent is None and run.id not in asked:
            if LEAKS_CANCELS and any(_times_out_late(node) for node in every_node(model.case)):
                continue
            yield f"{run.id} was cancelled ({run.error}), and none asked for it"


def _times_out_late(node: Node) -> bool:
    """Whether it is a timeout around a `try` with a TaskGroup in it."""
    if not isinstance(node, Timeout):
        return False
    tries = [one for one in every_node(Case(node.body)) if isinstance(one, Try)]
    return any(
        isinstance(one, Gather) and one.group
        for caught in tries
        for one in every_node(Case(caught.body))
    )


def a_cancel_happens(model: _Model) -> Iterator[str]:
    """A run whose cancel was acknowledged does not go on for long and complete."""
    if any(isinstance(node, Try) and node.final for node in every_node(model.case)):
        return  # an error in a `finally` takes the place of the cancellation, as it does in Python
    for told in model.acts("cancel"):
        own = [event for event in model.ledger.recorded if event.run_id == told.run_id]
        for event in own:
            if event.type == "workflow.completed" and event.time > told.time + model.delay:
                if not (_retried(model, told) or _had_returned(model, told)):
                    yield f"{told.run_id} was cancelled at {told.time} and completed at {event.time}"


def _had_returned(model: _Model, told: Told) -> bool:
    """Whether its code had returned, and the run only awaited a step that can be undone."""
    return any(
        seen.run_id == told.run_id and seen.kind == "returned" and seen.tick < told.tick
        for seen in model.ledger.seen
    )


def _retried(model: _Model, told: Told) -> bool:
    return any(one.tick > told.tick for one in model.acts("retry", "fork"))


def what_was_done_is_undone(model: _Model) -> Iterator[str]:
    """A run that fails or is cancelled undoes all that completed, in exact reverse, and begins
    nothing else then; one that completes or continues undoes nothing."""
    for uid, events in model.lives.items():
        end = model.end_of(uid)
        undone = model.undone.get(uid, [])
        first: dict[str, Body] = {}
        for body in undone:
            first.setdefault(body.path, body)
        if end is not None and end.type in ("workflow.completed", "workflow.continued"):
            if undone:
                yield f"{end.run_id} completed and undid {list(first)}"
            continue
        if undone and not model.stills:
            for body in model.ledger.bodies:
                if body.uid == uid and not body.undo and body.tick > undone[0].tick:
                    yield f"{body.path} of {body.run_id} began after {undone[0].path} was undone"
        if end is None or end.forced:
            continue
        done = [path for path in _done(model, events) if _undo_of(model, path)]
        if list(first) != done[::-1]:
            yield f"{end.run_id} did {done} and undid {list(first)}"
        for path in first:
            times = sum(body.path == path for body in undone)
            most = 1 if _undo_of(model, path) == "ok" else 5
            if times > most + model.repeats:
                yield f"{path} of {end.run_id} was undone {times} times"
        if not model.repeats:
            for body in model.ledger.bodies:
                if body.uid == uid and not body.undo and body.end == "ok":
                    if _rolled_back(model, model.node(body.path)):
                        continue
                    if _undo_of(model, body.path) and body.path not in first:
                        yield f"{body.path} of {body.run_id} was done and never undone"


def a_failed_run_begins_nothing(model: _Model) -> Iterator[str]:
    """Once its code has failed, other branches are cancelled, and only a `finally` calls steps."""
    if model.repeats or model.acts("retry", "fork"):
        return  # code may have run ahead of what is durable, or be replayed with its failure
    for seen in model.ledger.seen:
        if seen.kind != "raised" or not re.search(r"@\d+$", seen.path):
            continue
        begun = {one.key for one in model.lives[seen.uid] if one.tick < seen.tick}
        for body in model.ledger.bodies:
            if body.uid == seen.uid and not body.undo and body.tick > seen.tick:
                late = body.key.partition("[")[0] not in begun
                if ":2" in body.path or "!" in body.path or _handles_finally(model, body.path):
                    continue
                if late:
                    yield f"{body.path} of {body.run_id} began after its code had failed"


def _handles_finally(model: _Model, path: str) -> bool:
    """Whether it is in an `except` around a `finally`, whose own error it handles."""
    around = (model.node(path[: part.start()]) for part in re.finditer(":1", path))
    return any(isinstance(node, Try) and _has_finally(node.body) for node in around)


def _has_finally(block: Block) -> bool:
    return any(isinstance(node, Try) and node.final for node in every_node(Case(block)))


def _done(model: _Model, events: list[Recorded]) -> list[str]:
    found = []
    for event in events:
        for key in _completed_keys(event):
            path = model.path_of(event, key)
            if path is not None and path not in found:
                found.append(path)
    return found


def _undo_of(model: _Model, path: str) -> str:
    node = model.node(path)
    return node.undo if isinstance(node, Step | Map) else ""


def children_have_an_owner(model: _Model) -> Iterator[str]:
    """A child ends with the life that began it, unless it is to outlive it; none vanishes."""
    touched = {told.run_id for told in model.acts("cancel", "terminate")}
    again = bool(model.acts("retry", "fork"))
    finals = any(isinstance(node, Try) and node.final for node in every_node(model.case))
    policies = {
        (event.uid, data["child_run_id"]): data.get("parent_close", "")
        for event in model.ledger.recorded
        if event.type == "child.spawned"
        for data in (json.loads(event.data),)
    }
    for child in model.ledger.children:
        if (child.parent_uid, child.run_id) not in policies:
            continue
        over = model.end_of(child.uid)
        if over is None:
            own = "~" not in child.run_id  # it may be taken, and then none begins
            if not (model.stuck or own or model.acts("delete") or again):
                yield f"{child.run_id} has vanished"
        elif policies[child.parent_uid, child.run_id] == "abandon":
            if over.type == "workflow.cancelled" and not touched & {*_above(child.run_id)}:
                yield f"{child.run_id} is to outlive its parent, and was cancelled"
        elif over.type in ("workflow.completed", "workflow.failed") and not again:
            end = model.end_of(child.parent_uid)
            until = _closed_at(model, over)
            if end is not None and until > end.time + model.delay:
                if finals and _cancelled_by(model, child.uid, end.time + model.delay):
                    continue  # a `finally` may take long, and its error replaces the cancellation
                yield f"{child.run_id} went on until {until}, its parent ended at {end.time}"


def _cancelled_by(model: _Model, uid: str, time: float) -> bool:
    return any(one.type == "cancel.requested" and one.time <= time for one in model.lives[uid])


def _closed_at(model: _Model, end: Recorded) -> float:
    """When a life began to do nothing more but undo, which may take long."""
    undoes = [one.time for one in model.lives[end.uid] if one.type == "compensation.started"]
    return min(undoes, default=end.time)


def _above(run_id: str) -> Iterator[str]:
    """A run, and those that began it."""
    yield run_id
    while "~" in run_id:
        run_id = run_id.rpartition("~")[0]
        yield run_id


def children_give_their_result(model: _Model) -> Iterator[str]:
    """What a parent is given for a child is what the child returned."""
    returned: dict[str, list[Any]] = defaultdict(list)
    for seen in model.ledger.seen:
        if seen.kind == "returned":
            returned[seen.path.rpartition("@")[0]].append(seen.value)
    for seen in model.ledger.seen:
        node = model.node(seen.path)
        if isinstance(node, Child) and seen.kind == "value" and seen.value != "begun":
            if seen.value not in returned[f"{seen.path}>"]:
                yield f"{seen.path} gave {seen.value}, the child {returned[f'{seen.path}>']}"


def signals_are_taken_once_and_in_order(model: _Model) -> Iterator[str]:
    """An acknowledged signal is taken once, before every later one of its name, or still waits."""
    sent: dict[tuple[str, str], list[int]] = defaultdict(list)
    known: set[tuple[str, str, str]] = set()
    for told in sorted(model.acts("signal"), key=lambda one: one.done or 0):
        if told.done is None:
            continue
        if told.dedup is not None:
            if (told.run_id, told.name, told.dedup) in known:
                continue
            known.add((told.run_id, told.name, told.dedup))
        sent[told.run_id, told.name].append(told.value)
    given: dict[tuple[str, str, str, str], int] = {}
    for seen in model.ledger.seen:
        node = model.node(seen.path)
        if isinstance(node, Signal) and seen.kind == "value" and seen.value != "timeout":
            given[seen.run_id, node.name, seen.uid, seen.path] = seen.value
    taken: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (run_id, name, _, _), value in given.items():
        taken[run_id, name].append(value)
    retried = bool(model.acts("retry", "fork"))
    spawned = [
        json.loads(event.data)["child_run_id"]
        for event in model.ledger.recorded
        if event.type == "child.spawned" and not event.copied
    ]
    for (run_id, name), values in taken.items():
        if spawned.count(run_id) > 1:
            continue  # several runs that have one id, one after the other
        own = sent[run_id, name]
        if any(value not in own for value in values) and not retried:
            yield f"{run_id} took {values} for {name!r}, sent were {own}"
        if len(set(values)) < len(values) and not retried:
            yield f"{run_id} took {values} for {name!r}: one of them twice"
        last = max((own.index(value) for value in values if value in own), default=-1)
        skipped = [value for value in own[:last] if value not in values]
        if skipped:
            yield f"{run_id} took {values} for {name!r} and never {skipped} before"


def the_first_answer_counts(model: _Model) -> Iterator[str]:
    """Of all answers to one question one is accepted, and code that asks gets an answer that was given to what it
    asks: never one to another question, and none that was refused."""
    accepted: dict[str, list[Told]] = defaultdict(list)
    for told in model.acts("answer"):
        if told.done is not None:
            accepted[told.name].append(told)
    for ask, answers in accepted.items():
        if len(answers) > 1:
            yield f"{ask} was answered {[told.value for told in answers]}, each as the first"
    given = {(told.answer, told.value) for told in model.acts("answer")}
    for seen in model.ledger.seen:
        if seen.kind == "value" and isinstance(model.node(seen.path), Halt | Ask):
            if (seen.path, seen.value) not in given:
                yield f"{seen.run_id} got {seen.value} for what it asks at {seen.path}"


def updates_are_answered(model: _Model) -> Iterator[str]:
    """What a run has answered reaches who asked; the same key has one answer."""
    answered = {
        (event.run_id, json.loads(event.data).get("update_id"))
        for event in model.ledger.recorded
        if event.type == "update.completed"
    }
    answers: dict[str, Any] = {}
    for told in model.ledger.told:
        if told.do != "update":
            continue
        if told.error is None and told.done is not None:
            key = f"{told.run_id} {told.dedup}" if told.dedup else str(told.value)
            first = answers.setdefault(key, told.answer)
            if first != told.answer:
                yield f"update {key} was answered {first} and then {told.answer}"
            if told.dedup is None and told.answer != told.value:
                yield f"update {told.value} was answered {told.answer}"
        elif "has not answered" in (told.error or "") and told.dedup is not None:
            key = f"update ask: {told.dedup}"
            if (told.run_id, key) in answered and not model.acts("retry", "fork"):
                yield f"update {told.dedup!r} is recorded as answered; its caller: {told.error}"


RULES: tuple[Callable[[_Model], Iterator[str]], ...] = (
    every_run_ends,
    histories_have_no_gap,
    code_sees_what_it_did,
    callers_get_plain_answers,
    a_body_is_repeated_for_a_reason,
    an_effect_and_its_record_are_one,
    a_recorded_step_never_runs_again,
    a_child_is_not_begun_twice,
    steps_have_their_outcome,
    maps_have_their_outcome,
    replays_see_the_same,
    runs_end_as_their_code_did,
    a_cancel_happens,
    what_was_done_is_undone,
    a_failed_run_begins_nothing,
    children_have_an_owner,
    children_give_their_result,
    signals_are_taken_once_and_in_order,
    the_first_answer_counts,
    updates_are_answered,
)


# -- paths ----------------------------------------------------------------------------------------

_TOKENS = re.compile(r"@\d+|\.\d+|:\d+|~\d+|\[\d+\]|>|!\d+")


@lru_cache(maxsize=4096)
def node_at(case: Case, path: str) -> Node | None:
    """The statement at a path; None for a workflow."""
    block: Block = case.body
    node: Node | None = None
    for token in _TOKENS.findall(path):
        match token[0]:
            case "@":
                node = None
            case ".":
                node = block[int(token[1:])]
            case ">" if isinstance(node, Child):
                block, node = node.body, None
            case "!":
                block, node = case.handler or (), None
            case "~" if isinstance(node, Loop):
                block = node.body
            case ":":
                block = _part(node, int(token[1:]))
    return node


def _part(node: Node | None, number: int) -> Block:
    match node:
        case Gather(branches=branches):
            return branches[number]
        case Try(body=body, handler=handler, final=final):
            return (body, handler, final)[number]
        case Timeout(body=body) | Scope(body=body) | Branch(body=body):
            return body
    return ()
