"""Why a run is where it is: what it waits for, since when, until when, who holds it, what is in the
way, and what to type to move it on. A pure function of its record and its outline.

Why what is in a queue has not begun: its rules, its workers, or that it is dead.

Reason: a sentence about a run, and the words of others in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from shlex import quote

from msgspec import Struct

from outlast.model.run import MOVING, Run, Status
from outlast.model.run_contents import HeldTask
from outlast.model.stats import QueueStats
from outlast.model.task import Task
from outlast.model.worker import Worker
from outlast.query.outline import Part


def reasons(
    run: Run,
    parts: Sequence[Part],
    *,
    now: datetime,
    inbox: int = 0,
    queue: QueueStats | None = None,
    steps: Mapping[str, QueuedStep] | None = None,
    workers: Sequence[Worker] | None = None,
) -> list[Reason]:
    """Why a run is where it is, the most important first. `queue` is how the queue stands in which
    it waits for its turn, `steps` its steps that are tasks in queues, by their keys, `workers` those that
    live."""
    open_parts = [each for part in parts for each in part.everything() if _waits(each)]
    id = quote(run.id)
    if run.moved_to is not None:
        return [_moved(run, id)]
    if run.status.terminal:
        return [_ended(run, id)]
    if run.status is Status.PAUSED:
        return [
            Reason(
                text="It is paused since {} and rests until it is resumed.",
                times=(run.updated_at,),
                commands=(f"outlast resume {id}", f"outlast cancel {id}"),
            )
        ]
    if run.wait_kind == "mismatch":
        return [
            Reason(
                text="Its code and its history disagree, so it is parked since {}:\n"
                + escaped(run.error),
                times=(run.updated_at,),
                commands=(f"outlast resume {id}   # once code that fits is deployed",),
            )
        ]
    able = None if workers is None else [one for one in workers if run.workflow in one.workflows]
    if run.wait_kind == "queue":
        return [_in_line(run, id, queue)]
    held = run.owner is not None and run.claimed_until is not None
    found = [
        Reason(
            text=f"Its worker {one(worker.owner)} says that it is stuck: {escaped(trouble)}.",
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
                text=f"A worker has it: {one(run.owner)}, whose lease ends at {{}} unless it is renewed.",
                times=(run.claimed_until,),
            )
        )
    elif run.runnable_at is not None and run.runnable_at <= now:
        found.append(_stuck(run, held=held))
    for part in open_parts:
        step = None if steps is None or part.status == "retrying" else steps.get(part.key)
        found.append(_waiting(part, id) if step is None else queued(part, step, now))
    if inbox:
        what = "1 message waits" if inbox == 1 else f"{inbox} messages wait"
        until = "a worker takes the run"
        if able is not None and not able and not run.rejected_by:
            until = f"a worker is started that has the code of {one(run.workflow)}: none lives"
        found.append(Reason(text=f"{what} in its inbox until {until}."))
    if not found:
        found.append(_silent(run))
    return found


def _waits(part: Part) -> bool:
    return part.is_open and part.kind not in ("task", "scope", "loop", "compensation")


def _moved(run: Run, id: str) -> Reason:
    where = quote(run.moved_to or "")
    if run.wait_kind == MOVING:
        return Reason(
            text=f"It is being moved to {escaped(run.moved_to)} since {{}}, and goes on nowhere "
            "until that is done.",
            times=(run.updated_at,),
            commands=(f"outlast move --to {where}   # unless one is under way",),
        )
    return Reason(
        text=f"It was moved to {escaped(run.moved_to)} at {{}} and goes on there.",
        times=(run.updated_at,),
        commands=(f"outlast show {id} --store {where}",),
    )


def _ended(run: Run, id: str) -> Reason:
    at = run.ended_at or run.updated_at
    if run.status is Status.COMPLETED:
        return Reason(
            text="It completed at {}; nothing is left to do.",
            times=(at,),
            commands=(f"outlast show {id}",),
        )
    if run.status is Status.CANCELLED:
        return Reason(text=f"It was cancelled at {{}}: {one(run.error)}.", times=(at,))
    step = f" A retry goes on from {one(run.recover_to)}." if run.recover_to else ""
    return Reason(
        text=f"It failed at {{}}: {one(run.error)}.{step}",
        times=(at,),
        commands=(f"outlast show {id}", f"outlast retry {id}"),
    )


def _rejected(run: Run, able: Sequence[Worker] | None) -> Reason:
    """Some code could not go on with it. Is there other code?"""
    text = f"Code that was tried cannot go on with it: {escaped(run.error)}\n"
    left = [each for each in able or () if each.code not in run.rejections]
    if left:
        return Reason(
            text=text + f"It is left to workers with other code, such as {one(left[0].owner)}."
        )
    return Reason(
        text=text + "No live worker has other code; a worker that starts with other code tries it."
    )


def _in_line(run: Run, id: str, queue: QueueStats | None) -> Reason:
    name = quote(run.queue)
    text = f"It waits since {{}} for its turn in queue {one(run.queue)}"
    commands: tuple[str, ...] = (f"outlast queue show {name}", f"outlast cancel {id}")
    rule = None if queue is None else blocked(queue, "")
    if rule is None:
        text += (
            ". Nothing keeps the queue from going on: it begins when its time and its turn have come "
            f"and a worker serves that queue and has the code of {one(run.workflow)}."
        )
    else:
        text += rule[0]
        commands = (rule[1], *commands)
    return Reason(text=text, times=(run.created_at,), commands=commands)


def _stuck(run: Run, *, held: bool) -> Reason:
    since = run.runnable_at
    assert since is not None
    if held and run.claimed_until is not None:
        text = (
            f"Its worker {one(run.owner)} has not renewed its lease, which ended at {{}}: it is gone "
            f"or cannot reach the store. The next worker with the code of {one(run.workflow)} "
            "takes over."
        )
        since = run.claimed_until
    else:
        text = (
            f"It can go on since {{}}, but no worker has taken it: none that has the code of "
            f"{one(run.workflow)} is running, or all of them are busy."
        )
    return Reason(text=text, times=(since,), commands=("outlast worker MODULE:APP",))


def _waiting(part: Part, id: str) -> Reason:
    since = (part.started_at,) if part.started_at is not None else ()
    until = (part.until,) if part.until is not None else ()
    by = ", until {}" if until else ""
    start = " since {}" if since else ""
    name = one(part.name)
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
            return Reason(
                text=f"It waits for a person{start}.",
                times=since,
                commands=(f"outlast show {id}", f"outlast resume {id} --value JSON"),
            )
        case "child":
            child = quote(part.child_id or "")
            return Reason(
                text=f"It waits for its child {one(part.child_id)}{start}.",
                times=since,
                commands=(f"outlast why {child}",),
            )
        case "step" if part.status == "retrying":
            tries = len(part.attempts)
            again = " and is tried again at {}" if until else ""
            return Reason(
                text=f"Attempt {tries} of step {name} failed ({one(part.error)}){again}.",
                times=until,
            )
        case "step":
            nth = f" (attempt {len(part.attempts)})" if len(part.attempts) > 1 else ""
            return Reason(text=f"Step {name}{nth} is under way{start}.", times=since)
        case "map":
            return Reason(
                text=f"Map {name} is under way{start}: {escaped(part.note)}.", times=since
            )
        case _:
            return Reason(
                text=f"It waits for {escaped(part.kind)} {name}{start}{by}.", times=since + until
            )


def _silent(run: Run) -> Reason:
    if run.runnable_at is not None:
        return Reason(text="It will go on at {}.", times=(run.runnable_at,))
    return Reason(
        text=f"It is {run.status} since {{}} and nothing in its history says for what.",
        times=(run.updated_at,),
        commands=(f"outlast show {quote(run.id)}",),
    )


class QueuedStep(Struct, frozen=True, kw_only=True):
    """How the task of a step stands: who has it and until when, why it is dead and since when, how its
    queue stands, and whether a living worker serves that (None: nobody can tell)."""

    task: Task
    queue: QueueStats
    holder: HeldTask | None = None
    dead: tuple[str, datetime] | None = None
    served: bool | None = None


def blocked(queue: QueueStats, key: str) -> tuple[str, str] | None:
    """Which rule of a queue, or of a key in it, lets nothing begin, and what to type to change it."""
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
                f", which has {queue.said('in_flight')} under way and allows {rules.concurrency} at once.",
                f"outlast queue set {name} --concurrency N",
            )
        case "key_concurrency":
            return (
                f", which allows {rules.key_concurrency} of the key {one(key)} at once.",
                f"outlast queue set {name} --key-concurrency N",
            )
        case "key_rate":
            return (
                f", whose rate lets none of the key {one(key)} begin now.",
                f"outlast queue set {name} --key-rate N/SECONDS",
            )
        case _:
            return ", whose rate lets none begin now.", f"outlast queue set {name} --rate N/SECONDS"


def queued(part: Part, step: QueuedStep, now: datetime) -> Reason:
    """What a step in a queue waits for."""
    task, name = step.task, one(part.name)
    line, queue = quote(task.queue), one(step.queue.queue)
    show = f"outlast queue show {quote(step.queue.queue)}"
    since = part.attempts[-1].started_at if part.attempts else part.started_at
    if step.dead is not None:
        reason, at = step.dead
        return Reason(
            text=f"The task of step {name} is dead in queue {queue} since {{}}: {one(reason)}.",
            times=(at,),
            commands=(f"outlast dead ls {line}", f"outlast dead redrive {line} {quote(task.id)}"),
        )
    if step.holder is not None:
        nth = f", for the {task.attempt}. time" if task.attempt > 1 else ""
        until = step.holder.until
        return Reason(
            text=f"Worker {one(step.holder.owner)} has taken step {name} from queue {queue}{nth}"
            + ("." if until is None else ", and has it until {}, or longer if it says so."),
            times=() if until is None else (until,),
            commands=("outlast workers", show),
        )
    if task.run_at is not None and task.run_at > now:
        return Reason(
            text=f"Step {name} is in queue {queue} and may begin at {{}}.",
            times=(task.run_at,),
            commands=(show,),
        )
    text = f"Step {name} waits{'' if since is None else ' since {}'} in queue {queue}"
    times = () if since is None else (since,)
    rule = blocked(step.queue, task.key)
    if rule is not None:
        return Reason(text=text + rule[0], times=times, commands=(rule[1], show))
    if step.served is False:
        return Reason(
            text=f"{text}, which no worker serves that is alive and has the step's code.",
            times=times,
            commands=("outlast worker MODULE:APP", "outlast workers"),
        )
    return Reason(
        text=f"{text}, and no worker has taken it. Ready there: {step.queue.ready}, under "
        f"way: {step.queue.in_flight}.",
        times=times,
        commands=(show, "outlast workers"),
    )


class Reason(Struct, frozen=True, kw_only=True):
    """What a run waits for. `text` has ``{}`` where the moments of `times` belong, in the words of
    whoever shows them; `commands` move it on."""

    text: str
    times: tuple[datetime, ...] = ()
    commands: tuple[str, ...] = ()


def one(text: str | None) -> str:
    """Foreign text in a sentence, quoted."""
    return escaped(repr(text or ""))


def escaped(text: str | None) -> str:
    """Foreign text whose braces do not stand for moments."""
    return (text or "").replace("{", "{{").replace("}", "}}")
