"""The verdict: a pure function from both ledgers and the final dump to broken promises.

What is promised, whenever and however often the process was killed:

- every start that was acknowledged is there, everything has ended, with the right result, and with
  the one that the client was told;
- a body runs only once its start is on record, once for each start, and never after its result is;
- a step is tried no more often than its policy and the kills allow;
- signals are taken once each, in the order in which they were sent;
- what was done is undone in exact reverse order;
- histories are what `outlast.testkit.checker` wants them to be, and the file is sound.

A step counts as the cause and fails if its process died three times while it ran, the last time while
it ran alone. That is right only if its history shows three processes that began it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

import msgspec

from outlast.engine.operations.step import is_crash_cause
from outlast.model import Event, Status
from outlast.model.event import payload_of
from outlast.model.payloads import (
    CompensationFailed,
    MapProgress,
    MapStarted,
    SignalReceived,
    StepCompleted,
    StepFailedEvent,
    StepLost,
    StepStarted,
)
from outlast.testkit import checker
from outlast.testkit.dump import RunDump
from tests.campaigns.engine_kills.killing import Evidence
from tests.campaigns.engine_kills.ledgers import Effect
from tests.campaigns.engine_kills.workflows import RETRY, SIGNALS, kind_of

GIVEN_UP = ("the process died while it ran", "the process died again and again")


def judge(evidence: Evidence) -> list[str]:
    """Every promise that was not kept, in sentences."""
    found = [f"integrity_check: {line}" for line in evidence.integrity if line != "ok"]
    found += starts_and_results(evidence)
    found += bodies_after_their_start(evidence)
    found += bodies_before_their_record(evidence)
    found += attempts(evidence)
    found += signals(evidence)
    found += compensations(evidence)
    effects = executions(evidence.effects)
    promises = checker.Evidence(dumps=[evidence.final], effects=effects, complete=False)
    return found + [str(violation) for violation in checker.check(promises)]


def starts_and_results(evidence: Evidence) -> Iterator[str]:
    """Acknowledged starts are there, all is over, and ended as it should and as was told."""
    runs = evidence.final.runs
    for line in evidence.told:
        if line.what == "started" and line.run_id not in runs:
            yield f"{line.run_id}: its start was acknowledged, and it is not there"
    for run_id, dumped in runs.items():
        if "~" in run_id:
            continue  # a child: its parent's result has it
        run = dumped.run
        kind, number = kind_of(run_id, evidence.kinds)
        expected = kind.expected(number)
        if not run.status.terminal:
            yield f"{run_id}: is {run.status}"
        elif given_up(dumped):
            yield from _rightly(dumped, evidence, kind.deaths)
        elif kind.ends is not Status.COMPLETED:
            if run.status is not kind.ends or str(expected) not in (run.error or ""):
                yield f"{run_id}: is {run.status} with {run.error!r}, not with {expected!r}"
        elif run.status is not Status.COMPLETED or _value(dumped) != expected:
            yield f"{run_id}: is {run.status} with {_value(dumped)!r}, {run.error!r}, not {expected!r}"
    for line in evidence.told:
        if line.what in ("result", "failed", "cancelled") and line.run_id in runs:
            dumped = runs[line.run_id]
            now = _value(dumped) if line.what == "result" else dumped.run.error
            if now != line.value:
                yield f"{line.run_id}: the client was told {line.value!r}, and it is {now!r}"


def given_up(dumped: RunDump) -> bool:
    """Whether something in a run has failed because its process died too often meanwhile."""
    return any(text in (dumped.run.error or "") for text in GIVEN_UP) or any(
        isinstance(payload := payload_of(event), StepFailedEvent)
        and payload.error_type == "Interrupted"
        for event in dumped.events
    )


def _rightly(dumped: RunDump, evidence: Evidence, deaths: int) -> Iterator[str]:
    """Whether so many processes have begun one step and left no outcome: each claim is another."""
    id = dumped.run.id
    tokens: dict[tuple[str, str], set[int]] = {}
    for run_id, one in evidence.final.runs.items():
        for event in one.events if run_id.partition("~")[0] == id else ():
            if isinstance(payload_of(event), StepStarted | MapStarted | MapProgress):
                tokens.setdefault((run_id, event.step_name), set()).add(event.token)
    if max(map(len, tokens.values()), default=0) < deaths:
        yield f"{id}: was given up ({dumped.run.error}), and no step was begun so often"


def bodies_after_their_start(evidence: Evidence) -> Iterator[str]:
    """A body runs once its start is durable, and once for each start."""
    seen: set[tuple[str, str, str, int]] = set()
    for effect, dumped in _begun(evidence):
        if effect.key.endswith("]"):
            continue  # an item of a map: those are recorded in ranges
        name = f"{effect.run_id}: attempt {effect.attempt} of {effect.key!r}"
        one = (effect.run_id, effect.uid, effect.key, effect.attempt)
        if one in seen:
            yield f"{name} ran twice"
        seen.add(one)
        started = [
            payload.attempt
            for event in dumped.events
            if event.step_name == effect.key
            and isinstance(payload := payload_of(event), StepStarted)
        ]
        if effect.attempt not in started:
            yield f"{name} ran, and its start is not on record"


def bodies_before_their_record(evidence: Evidence) -> Iterator[str]:
    """Once a result is recorded, its body never begins again."""
    recorded: dict[str, dict[str, Event]] = {}
    for run_id, dumped in evidence.final.runs.items():
        recorded[run_id] = {key: event for event in dumped.events for key in records(event)}
    for effect, _ in _begun(evidence):
        record = recorded[effect.run_id].get(effect.key)
        if record is not None and effect.at > record.timestamp.timestamp() * 1e9:
            yield f"{effect.run_id}: {effect.key!r} ran again in life {effect.life} after its record"


def records(event: Event) -> list[str]:
    """The keys of the steps and items that an event says are completed."""
    payload = payload_of(event)
    if isinstance(payload, StepCompleted):
        return [event.step_name]
    if isinstance(payload, MapProgress):
        return [f"{event.step_name}[{index}]" for index in payload.completed]
    return []


def attempts(evidence: Evidence) -> Iterator[str]:
    """Attempts count up, end with a result, and are as few as policy and kills allow."""
    for run_id, dumped in evidence.final.runs.items():
        number, failed, over = Counter[str](), Counter[str](), set[str]()
        lost, stopped, alone = Counter[str](), Counter[str](), set[str]()
        for event in dumped.events:
            key, payload = event.step_name, payload_of(event)
            if isinstance(payload, StepStarted):
                number[key] += 1
                if payload.attempt != number[key] or key in over:
                    yield f"{run_id}: attempt {payload.attempt} of {key!r} is one too many"
                cuts = number[key] - 1 - failed[key] - lost[key] - stopped[key]
                if is_crash_cause(cuts, alone=key in alone):
                    yield f"{run_id}: {key!r} was cut off {cuts} times and goes on"
                (alone.add if payload.alone else alone.discard)(key)
            elif isinstance(payload, StepLost):
                lost[key] += 1
                if payload.attempt == number[key]:
                    alone.discard(key)  # that attempt was not cut off
            elif isinstance(payload, StepFailedEvent) and payload.stopped:
                alone.discard(key)
                stopped[key] += 1  # through no fault of its own, and not counted by its policy
            elif isinstance(payload, StepFailedEvent):
                failed[key] += 1
                if failed[key] > RETRY.attempts:
                    yield f"{run_id}: {key!r} failed {failed[key]} times"
            if isinstance(payload, StepCompleted) or (
                isinstance(payload, StepFailedEvent) and not payload.will_retry
            ):
                over.add(key)


def signals(evidence: Evidence) -> Iterator[str]:
    """A run that listens has heard every word once, in order; none was refused without reason."""
    asked = Counter((one.run_id, one.number) for one in evidence.told if one.what == "sending")
    refused = [one for one in evidence.told if one.what == "refused"]
    for run_id, dumped in evidence.final.runs.items():
        if not run_id.startswith("listens") or given_up(dumped):
            continue
        heard = [
            msgspec.json.decode(payload.payload or b"null")
            for event in dumped.events
            if isinstance(payload := payload_of(event), SignalReceived)
        ]
        if heard != list(range(SIGNALS)):
            yield f"{run_id}: heard {heard}"
        for line in refused:
            if line.run_id == run_id and asked[run_id, line.number] < 2:
                yield f"{run_id}: word {line.number} was refused, and nobody had sent it before"


def compensations(evidence: Evidence) -> Iterator[str]:
    """What was booked is undone, last first, and nothing else is."""
    labels: dict[str, list[str]] = {}
    undo: dict[str, list[str]] = {}
    for one in evidence.effects:
        if one.label and one.what == "ended":
            labels.setdefault(one.run_id, []).append(one.label)
        elif one.label.startswith("un-") and one.what == "begun":
            undo.setdefault(one.run_id, []).append(one.label)
    for run_id, dumped in evidence.final.runs.items():
        if not run_id.startswith("undoes"):
            continue
        done = [event.step_name for event in dumped.events if event.type == "step.completed"]
        booked = [key for key in done if not key.startswith("undo/")]
        undone = [key for event in dumped.events for key in _undone(event)]
        if undone != booked[::-1]:
            yield f"{run_id}: booked {booked} and undid {undone}"
        mine = labels.get(run_id, [])
        was = list(dict.fromkeys(one for one in mine if not one.startswith("un-")))
        # In the order in which they began: a process that stood still may end late.
        undoing = [one for one in undo.get(run_id, []) if one in mine]
        now = [one.removeprefix("un-") for one in undoing]
        order = [label for label, _ in groupby(now)]
        complete = len(order) == len(was) or given_up(dumped)
        if order != [label for label in reversed(was) if label in order] or not complete:
            yield f"{run_id}: the world has seen bookings of {was} and cancellations of {order}"


def _undone(event: Event) -> list[str]:
    """The step that an event says is undone, or cannot be, which must show."""
    payload = payload_of(event)
    if isinstance(payload, CompensationFailed):
        return [payload.failed_step]
    if isinstance(payload, StepCompleted) and event.step_name.startswith("undo/"):
        return [event.step_name.removeprefix("undo/")]
    return []


# -- reading --------------------------------------------------------------------------------------


def _begun(evidence: Evidence) -> Iterator[tuple[Effect, RunDump]]:
    """StepExecutor that began, with the run they belong to; those of an earlier life of it are over."""
    for effect in evidence.effects:
        dumped = evidence.final.runs.get(effect.run_id)
        if effect.what == "begun" and dumped is not None and dumped.run.uid == effect.uid:
            yield effect, dumped


def executions(effects: list[Effect]) -> list[checker.Effect]:
    """Each body that began, and the line on which it ended, if it did."""
    ended = {
        (one.run_id, one.uid, one.key, one.attempt, one.life): line
        for line, one in enumerate(effects)
        if one.what not in ("begun", "cancelled")
    }
    return [
        checker.Effect(
            run_id=one.run_id,
            step=one.key,
            begun=line,
            ended=ended.get((one.run_id, one.uid, one.key, one.attempt, one.life)),
        )
        for line, one in enumerate(effects)
        if one.what == "begun"
    ]


def _value(dumped: RunDump) -> object:
    result = dumped.run.result
    return None if result is None else msgspec.json.decode(result)
