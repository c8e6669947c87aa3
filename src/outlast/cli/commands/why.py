"""`outlast why`: what a run waits for, and what to type to move it on."""

from __future__ import annotations

from datetime import datetime

import click
from msgspec.structs import replace

from outlast.cli.arguments import RUN, find_run
from outlast.cli.commands.workers import workers_of
from outlast.cli.output import Output, iso, neutral, neutral_lines
from outlast.cli.session import Session, with_session
from outlast.client.queues import Queues
from outlast.model.queue_policy import scope_of
from outlast.model.run import Run
from outlast.ports.capabilities import Capability
from outlast.ports.store import Store
from outlast.query.outline import outline
from outlast.query.why import QueuedStep, reasons


@click.command("why")
@click.argument("run_id", metavar="RUN", type=RUN)
@with_session
async def why_command(session: Session, *, run_id: str) -> None:
    """Say in a sentence or two what a run waits for, since when, until when, and who holds it.

    \b
      outlast why order-1
    """
    out = session.out
    async with session.store() as store:
        run = await find_run(store, run_id)
        parts = outline(await store.history(run.id), ended=run.status.terminal)
        inbox = 0
        if Capability.INBOX in store.capabilities:
            inbox = len(await store.inbox(run.id, limit=1_000))
        queue = None
        if run.wait_kind == "queue":
            [queue] = await Queues(store).stats(run.queue)
        steps = {}
        if any(one.is_open and one.kind == "step" for part in parts for one in part.walk()):
            steps = await _queued_steps(store, run)
        workers = None
        if Capability.WORKERS in store.capabilities and not run.status.terminal:
            workers = [worker for worker, alive in await workers_of(store) if alive]
        found = reasons(
            run,
            parts,
            now=await store.now(),
            inbox=inbox,
            queue=queue,
            steps=steps,
            workers=workers,
        )
    found = [replace(one, commands=tuple(map(session.here, one.commands))) for one in found]
    if out.json:
        for reason in found:
            out.value(
                {
                    "run_id": run.id,
                    "status": run.status,
                    "why": reason.text.format(*(moment.isoformat() for moment in reason.times)),
                    "commands": reason.commands,
                }
            )
        return
    out.line(f"{neutral(run.id)} is {out.styled(run.status, bold=True)}.")
    for reason in found:
        out.line(
            neutral_lines(reason.text.format(*(_when(out, moment) for moment in reason.times)))
        )
    commands = [command for reason in found for command in reason.commands]
    if commands:
        out.line()
        for command in dict.fromkeys(commands):
            out.line(f"  {neutral(command)}", "cyan")


async def _queued_steps(store: Store, run: Run) -> dict[str, QueuedStep]:
    """The steps of a run that are tasks in queues, by their keys, and how each of them stands."""
    if Capability.MOVE not in store.capabilities:
        return {}
    owned = await store.contents(run.id)
    gone = {one.task.id: (one.reason, one.died_at) for one in owned.dead}
    tasks = [task for task in (*owned.tasks, *(one.task for one in owned.dead)) if task.step]
    if not tasks:
        return {}
    lines = {task.queue for task in tasks}
    queues = {name: (await Queues(store).stats(name))[0] for name in set(map(scope_of, lines))}
    now = await store.now()
    holders = {
        (one.queue, one.task_id): one
        for one in owned.holdings
        if one.until is None or one.until > now
    }
    serving = None
    if Capability.WORKERS in store.capabilities:
        serving = {
            name for worker, alive in await workers_of(store) if alive for name in worker.queues
        }
    return {
        task.step: QueuedStep(
            task=task,
            queue=queues[scope_of(task.queue)],
            holder=holders.get((task.queue, task.id)),
            dead=gone.get(task.id),
            served=None if serving is None else task.queue in serving,
        )
        for task in tasks
    }


def _when(out: Output, moment: datetime) -> str:
    """A moment by the clock, and how far away it is."""
    if out.utc:
        return iso(moment)
    clock = iso(moment)[11:19] if abs(moment - out.now).days < 1 else iso(moment)[:16]
    return f"{clock.replace('T', ' ')} UTC ({out.moment(moment)})"
