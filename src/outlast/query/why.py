"""Why a run does not advance, and what to do: `reasons`, a pure function of a run's record and outline.

A reason says what the run waits for, since when and until when, which worker holds it, and which command
moves it on. For a queued run or step it names the rule of the queue, or the worker, that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from shlex import quote

from msgspec import Struct

from outlast.model.claim import Worker
from outlast.model.run import MOVING, Run, Status, WaitKind
from outlast.model.run_contents import HeldTask, Task
from outlast.model.stats import QueueStats
from outlast.query.outline import Part


class Reason(Struct, frozen=True, kw_only=True):
    """One reason. `text` has ``{}`` in place of each of `times`, since the reader formats them; `commands` move
    the run on."""

    text: str
    times: tuple[datetime, ...] = ()
    commands: tuple[str, ...] = ()


class QueuedStep(Struct, frozen=True, kw_only=True):
    """The task of a queued step: who holds it, why and since when it is dead, the statistics of its queue, and
    whether a live worker serves the queue (None: unknown)."""

    task: Task
    queue: QueueStats
    holder: HeldTask | None = None
    dead: tuple[str, datetime] | None = None
    served: bool | None = None


def reasons(
    run: Run,
    parts: Sequence[Part],
    *,
    now: datetime,
    inbox: int = 0,
    signals: Sequence[str] = (),
    queue: QueueStats | None = None,
    steps: Mapping[str, QueuedStep] | None = None,
    workers: Sequence[Worker] | None = None,
    place: str = "",
    parked: Mapping[str, str] | None = None,
) -> list[Reason]:
    """Why a run does not advance, the most important reason first. `queue` has the statistics of the queue in
    which the run waits, `signals` the names of the signals among the `inbox` messages, `steps` its queued
    steps by key, `workers` the live workers, `place` the line at which a failed run has failed,
    `parked` the children that are parked, and why."""
    open_parts = [each for part in parts for each in part.walk() if _is_wait(each)]
    id = quote(run.id)
    if run.moved_to is not None:
        return [_moved(run, id)]
    if run.status.terminal:
        return [_ended(run, id, place)]
    if run.status is Status.PAUSED:
        return [
            Reason(
                text="It is paused since {} until it is resumed.",
                times=(run.updated_at,),
                commands=(f"outlast resume {id}", f"outlast cancel {id}"),
            )
        ]
    if run.wait_kind == WaitKind.MISMATCH:
        return [
            Reason(
                text="Its code and its history disagree, so it is parked since {}:\n"
                + escaped(run.error),
                times=(run.updated_at,),
                commands=(f"outlast resume {id}   # after deploying code that fits",),
            )
        ]
    if run.wait_kind == WaitKind.BUG:
        return [
            Reason(
                text="A bug in its code has parked it since {}: " + escaped(run.error) + ".",
                times=(run.updated_at,),
                commands=(
                    f"outlast resume {id}   # to try again; a worker with corrected code does so by itself",
                    f"outlast cancel {id}   # ends it, and compensates what it has done",
                ),
            )
        ]
    able = (
        None
        if workers is None
        else [worker for worker in workers if run.workflow in worker.workflows]
    )
    if run.wait_kind == WaitKind.QUEUE:
        return [_queued_run(run, id, queue)]
    held = run.owner is not None and run.claimed_until is not None
    found = [
        Reason(
            text=f"Its worker {quoted(worker.owner)} reports that it is stuck: {escaped(trouble)}.",
            commands=(f"outlast export {id}   # for a report",),
        )
        for worker in workers or ()
        if (trouble := worker.troubles.get(run.id)) is not None
    ]
    if run.rejected_by is not None and run.error is not None:
        found.append(_rejected(run, able))
    if held and run.claimed_until is not None and run.claimed_until > now:
        found.append(
            Reason(
                text=f"Worker {quoted(run.owner)} has it. Its lease expires at {{}} unless it is renewed.",
                times=(run.claimed_until,),
            )
        )
    elif run.runnable_at is not None and run.runnable_at <= now:
        found.append(_unclaimed(run, held=held))
    for part in open_parts:
        step = None if steps is None or part.status == "retrying" else steps.get(part.key)
        found.append(_waiting(part, id) if step is None else _queued_step(part, step, now))
        if part.kind == "child" and (problem := (parked or {}).get(part.child_id or "")):
            found.append(Reason(text=f"That child is parked: {escaped(problem)}"))
        found += [
            Reason(text=f"Set aside, it waits on: {escaped(text)}.") for text in part.rejected
        ]
    waited = {part.name for part in open_parts if part.kind == "signal"}
    unread = [name for name in signals if name not in waited]
    found += [_unread(name, unread.count(name), waited) for name in dict.fromkeys(unread)]
    inbox -= len(unread)
    if inbox:
        what = "1 message waits" if inbox == 1 else f"{inbox} messages wait"
        until = "a worker claims the run"
        if able is not None and not able and not run.rejected_by:
            until = f"a worker with the code of {quoted(run.workflow)} starts: none is alive"
        found.append(Reason(text=f"{what} in its inbox until {until}."))
    if not found:
        found.append(_unknown(run))
    return found


def _unread(name: str, times: int, waited: set[str]) -> Reason:
    """A signal that was sent and that the code does not wait for: its name may be wrong."""
    text = f"The signal {quoted(name)} was sent" + (f" {times} times" if times > 1 else "")
    text += ", and the code does not wait for it"
    near = get_close_matches(name, sorted(waited), 1)
    return Reason(text=text + (f": did you mean {quoted(near[0])}?" if near else " yet."))


def _is_wait(part: Part) -> bool:
    return part.is_open and part.kind not in ("task", "scope", "loop", "compensation")


def _moved(run: Run, id: str) -> Reason:
    where = quote(run.moved_to or "")
    if run.wait_kind == MOVING:
        return Reason(
            text=f"It is being moved to {escaped(run.moved_to)} since {{}}, and runs in neither store "
            "until the move is finished.",
            times=(run.updated_at,),
            commands=(f"outlast move --to {where}   # unless a move is running",),
        )
    return Reason(
        text=f"It was moved to {escaped(run.moved_to)} at {{}} and goes on there.",
        times=(run.updated_at,),
        commands=(f"outlast show {id} --store {where}",),
    )


def _ended(run: Run, id: str, place: str) -> Reason:
    at = run.ended_at or run.updated_at
    if run.status is Status.COMPLETED:
        return Reason(
            text="It completed at {}; nothing is left to do.",
            times=(at,),
            commands=(f"outlast show {id}",),
        )
    if run.status is Status.CANCELLED:
        return Reason(text=f"It was cancelled at {{}}: {quoted(run.error)}.", times=(at,))
    raised = f", raised at {escaped(place)}" if place else ""
    step = f" A retry continues from {quoted(run.recover_to)}." if run.recover_to else ""
    return Reason(
        text=f"It failed at {{}}: {quoted(run.error)}{raised}.{step}",
        times=(at,),
        commands=(f"outlast show {id}", f"outlast retry {id}"),
    )


def _rejected(run: Run, able: Sequence[Worker] | None) -> Reason:
    """The code of a worker has rejected the run: is there a worker with other code?"""
    text = f"The code of a worker cannot continue it: {escaped(run.error)}\n"
    left = [each for each in able or () if each.code not in run.rejections]
    if left:
        return Reason(
            text=text + f"Workers with other code may continue it, such as {quoted(left[0].owner)}."
        )
    return Reason(
        text=text + "No live worker has other code; a worker that starts with other code tries it."
    )


def _queued_run(run: Run, id: str, queue: QueueStats | None) -> Reason:
    name = quote(run.queue)
    text = f"It waits since {{}} for its turn in queue {quoted(run.queue)}"
    commands: tuple[str, ...] = (f"outlast queue show {name}", f"outlast cancel {id}")
    rule = None if queue is None else blocking_rule(queue, "")
    if rule is None:
        text += (
            ". No rule blocks the queue: the run starts when its time and its turn come "
            f"and a worker serves that queue and has the code of {quoted(run.workflow)}."
        )
    else:
        text += rule[0]
        commands = (rule[1], *commands)
    return Reason(text=text, times=(run.created_at,), commands=commands)


def _unclaimed(run: Run, *, held: bool) -> Reason:
    since = run.runnable_at
    assert since is not None
    if held and run.claimed_until is not None:
        text = (
            f"Its worker {quoted(run.owner)} has not renewed its lease, which expired at {{}}: it crashed "
            f"or cannot reach the store. The next worker with the code of {quoted(run.workflow)} "
            "takes over."
        )
        since = run.claimed_until
    else:
        text = (
            f"It is runnable since {{}}, but no worker has claimed it: none with the code of "
            f"{quoted(run.workflow)} is running, or all of them are busy."
        )
    return Reason(text=text, times=(since,), commands=("outlast worker MODULE:APP",))


def _waiting(part: Part, id: str) -> Reason:
    since = (part.started_at,) if part.started_at is not None else ()
    until = (part.until,) if part.until is not None else ()
    by = ", until {}" if until else ""
    start = " since {}" if since else ""
    name = quoted(part.name)
    match part.kind:
        case "signal":
            return Reason(
                text=f"It waits for the signal {name}{start}{by}.",
                times=since + until,
                commands=(f"outlast signal {id} {quote(part.name)} --value JSON",),
            )
        case "timer":
            return Reason(text=f"It sleeps{start}{by}.", times=since + until)
        case "halt":
            whom = quoted(part.to) if part.to else "a person"
            what = f" to answer {name}" if part.name != part.key else ""
            due = ", due {}" if until else ""
            answer = f"outlast asks answer {quote(part.ask_id)}"
            return Reason(
                text=f"It waits for {whom}{what}{start}{due}.",
                times=since + until,
                commands=(f"outlast show {id}", answer),
            )
        case "child":
            child = quote(part.child_id or "")
            return Reason(
                text=f"It waits for its child {quoted(part.child_id)}{start}.",
                times=since,
                commands=(f"outlast why {child}",),
            )
        case "step" if part.status == "retrying":
            tries = len(part.attempts)
            again = "; the next attempt is at {}" if until else ""
            return Reason(
                text=f"Attempt {tries} of step {name} failed ({quoted(part.error)}){again}.",
                times=until,
            )
        case "step":
            nth = f" (attempt {len(part.attempts)})" if len(part.attempts) > 1 else ""
            return Reason(text=f"Step {name}{nth} is running{start}.", times=since)
        case "map":
            return Reason(text=f"Map {name} is running{start}: {escaped(part.note)}.", times=since)
        case _:
            return Reason(
                text=f"It waits for {escaped(part.kind)} {name}{start}{by}.", times=since + until
            )


def _unknown(run: Run) -> Reason:
    if run.runnable_at is not None:
        return Reason(text="It becomes runnable at {}.", times=(run.runnable_at,))
    return Reason(
        text=f"It is {run.status} since {{}} and its history does not say what for.",
        times=(run.updated_at,),
        commands=(f"outlast show {quote(run.id)}",),
    )


def blocking_rule(queue: QueueStats, key: str) -> tuple[str, str] | None:
    """The rule of a queue, or of a key in it, that lets nothing start, and the command that changes it."""
    name, rules = quote(queue.queue), queue.policy
    if rules is None:
        return None
    rule = queue.blocked_by or next(
        (line.blocked_by for line in queue.keys if key and line.key == key), None
    )
    match rule:
        case None:
            return None
        case "paused":
            return ", which is paused.", f"outlast queue resume {name}"
        case "concurrency":
            return (
                f", which has {queue.said('in_flight')} in flight and allows {rules.concurrency} at once.",
                f"outlast queue set {name} --concurrency N",
            )
        case "key_concurrency":
            return (
                f", which allows {rules.key_concurrency} of the key {quoted(key)} at once.",
                f"outlast queue set {name} --key-concurrency N",
            )
        case "key_rate":
            return (
                f", whose rate limit lets none of the key {quoted(key)} start now.",
                f"outlast queue set {name} --key-rate N/SECONDS",
            )
        case _:
            return (
                ", whose rate limit lets none start now.",
                f"outlast queue set {name} --rate N/SECONDS",
            )


def _queued_step(part: Part, step: QueuedStep, now: datetime) -> Reason:
    """Why a queued step has not started."""
    task, name = step.task, quoted(part.name)
    line, queue = quote(task.queue), quoted(step.queue.queue)
    show = f"outlast queue show {quote(step.queue.queue)}"
    since = part.attempts[-1].started_at if part.attempts else part.started_at
    if step.dead is not None:
        reason, at = step.dead
        return Reason(
            text=f"The task of step {name} is dead in queue {queue} since {{}}: {quoted(reason)}.",
            times=(at,),
            commands=(f"outlast dead ls {line}", f"outlast dead redrive {line} {quote(task.id)}"),
        )
    if step.holder is not None:
        nth = f" (delivery {task.attempt})" if task.attempt > 1 else ""
        until = step.holder.until
        return Reason(
            text=f"Worker {quoted(step.holder.owner)} has taken step {name} from queue {queue}{nth}"
            + ("." if until is None else ", and holds it until {} unless it extends that."),
            times=() if until is None else (until,),
            commands=("outlast workers", show),
        )
    if task.run_at is not None and task.run_at > now:
        return Reason(
            text=f"Step {name} is in queue {queue} and may start at {{}}.",
            times=(task.run_at,),
            commands=(show,),
        )
    text = f"Step {name} waits{'' if since is None else ' since {}'} in queue {queue}"
    times = () if since is None else (since,)
    rule = blocking_rule(step.queue, task.key)
    if rule is not None:
        return Reason(text=text + rule[0], times=times, commands=(rule[1], show))
    if step.served is False:
        return Reason(
            text=f"{text}, which no live worker with the step's code serves.",
            times=times,
            commands=("outlast worker MODULE:APP", "outlast workers"),
        )
    return Reason(
        text=f"{text}, and no worker has taken it. Ready there: {step.queue.ready}, in flight: "
        f"{step.queue.in_flight}.",
        times=times,
        commands=(show, "outlast workers"),
    )


def quoted(text: str | None) -> str:
    """User text in a sentence, quoted."""
    return escaped(repr(text or ""))


def escaped(text: str | None) -> str:
    """User text whose braces are not placeholders."""
    return (text or "").replace("{", "{{").replace("}", "}}")
