"""Why what is in a queue has not begun: its rules, its workers, or that it is dead."""

from __future__ import annotations

from datetime import datetime
from shlex import quote

from msgspec import Struct

from outlast.model.belongings import Holding
from outlast.model.stats import QueueStats
from outlast.model.task import Task
from outlast.query.outline import Part
from outlast.query.reason import Reason, one


class QueuedStep(Struct, frozen=True, kw_only=True):
    """How the task of a step stands: who has it and until when, why it is dead and since when, how its
    queue stands, and whether a living worker serves that (None: nobody can tell)."""

    task: Task
    queue: QueueStats
    holder: Holding | None = None
    dead: tuple[str, datetime] | None = None
    served: bool | None = None


def blocked(queue: QueueStats, key: str) -> tuple[str, str] | None:
    """Which rule of a queue, or of a key in it, lets nothing begin, and what to type to change it."""
    name, rules = quote(queue.queue), queue.flow
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
