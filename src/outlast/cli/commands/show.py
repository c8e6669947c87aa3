"""`outlast show`: what a run has done. `outlast why`: what it waits for, and what to type to continue it."""

from __future__ import annotations

from datetime import datetime
from shlex import quote

import click
from msgspec import Raw
from msgspec.structs import replace

from outlast.cli.arguments import RUN, find_run
from outlast.cli.commands.worker import workers_of
from outlast.cli.output import STATUS_COLOURS, Output, iso, length, neutral, neutral_lines
from outlast.cli.run_views import as_text, draw_tree, event_record, part_record, run_record
from outlast.cli.session import Session, with_session
from outlast.client.queues import Queues
from outlast.model.asks import without_asks
from outlast.model.queue_policy import scope_of
from outlast.model.run import Run, Status, WaitKind
from outlast.ports.port import Capability
from outlast.ports.store import Store
from outlast.query.outline import Part, failure_place, failure_text, outline
from outlast.query.why import QueuedStep, reasons

DEEPEST = 8


@click.command("show")
@click.argument("run_id", metavar="RUN", type=RUN)
@click.option("--full", is_flag=True, help="Inputs and results at full length.")
@click.option("--history", is_flag=True, help="The recorded events.")
@with_session
async def show_command(session: Session, *, run_id: str, full: bool, history: bool) -> None:
    """Show a run as a tree: steps, attempts, maps, children, compensation, and times.

    \b
      outlast show order-1
      outlast show order-1 --full
      outlast show order-1 --history
    """
    out = session.out
    async with session.store() as store:
        run = await find_run(store, run_id)
        if history:
            async for event in store.stream(run.id):
                if out.json:
                    out.value(event_record(event))
                else:
                    about = f"{event.sequence:5}  {event.type:24} {neutral(event.step_name)}"
                    data = neutral(as_text(event.output or event.data))
                    out.line(f"{about:50}  {data if full else out.short(data, 52)}".rstrip())
            return
        parts = await _with_children(store, run, DEEPEST)
        place = ""
        if run.status is Status.FAILED:
            place = failure_text(await store.history(run.id, after=run.sequence - 1))
    if out.json:
        record = {**run_record(run, values=True), "traceback": place}
        out.value({**record, "parts": [part_record(part) for part in parts]})
        return
    _head(out, run, full=full)
    if parts:
        out.line()
        draw_tree(out, run, parts, full=full)
    if run.error:
        out.line()
        for line in neutral_lines(run.error).splitlines():
            out.line(line, "red")
        if place:
            out.line()
            for line in neutral_lines(place).splitlines():
                out.line(f"  {line if full else out.short(line, 2)}".rstrip(), "red")
    if not run.status.terminal or run.error:
        out.note(f"what it waits for: {session.here(f'outlast why {quote(run.id)}')}")


async def _with_children(store: Store, run: Run, depth: int) -> list[Part]:
    """The parts of a run, with the parts of each child below it."""
    parts = outline(await store.history(run.id), ended=run.status.terminal)
    for part in [one for top in parts for one in top.walk()]:
        if part.child_id is not None and depth > 0:
            child = await store.find_one(part.child_id)
            if child is not None:
                part.parts += await _with_children(store, child, depth - 1)
    return parts


def _head(out: Output, run: Run, *, full: bool) -> None:
    out.line(neutral(run.id), "bright_white", bold=True)
    end = run.ended_at or out.now
    took = length((end - run.created_at).total_seconds())
    status = out.styled(run.status, STATUS_COLOURS.get(run.status))
    waits = f" ({neutral(run.wait_kind)})" if run.wait_kind else ""
    lasted = f"took {took}" if run.ended_at else f"for {took}"
    lines: list[tuple[str, str]] = [
        ("status", f"{status}{waits}, {lasted}"),
        ("workflow", neutral(_code(run))),
        ("created", out.moment(run.created_at)),
    ]
    if run.ended_at:
        lines.append(("ended", out.moment(run.ended_at)))
    if run.parent:
        lines.append(("parent", neutral(run.parent)))
    if run.owner:
        lines.append(
            ("owner", f"{neutral(run.owner)}, lease expires {out.moment(run.claimed_until)}")
        )
    for name, value in without_asks(run.attributes).items():
        lines.append((f"attr.{neutral(name)}", neutral(str(value))))
    values: list[tuple[str, Raw | None]] = [("input", run.input), ("result", run.result)]
    values += [("halted with", run.halt_data), *((f"published {k}", v) for k, v in run.ctx.items())]
    for name, raw in values:
        if raw is not None:
            text = neutral(as_text(raw))
            lines.append((neutral(name), text if full else out.short(text, 14)))
    for name, text in lines:
        out.line(f"{name:<12}  {text}")


def _code(run: Run) -> str:
    return run.workflow if run.version == "" else f"{run.workflow} version {run.version}"


@click.command("why")
@click.argument("run_id", metavar="RUN", type=RUN)
@with_session
async def why_command(session: Session, *, run_id: str) -> None:
    """Explain in a sentence or two what a run waits for, since when, until when, and which process owns it.

    \b
      outlast why order-1
    """
    out = session.out
    async with session.store() as store:
        run = await find_run(store, run_id)
        history = await store.history(run.id)
        parts = outline(history, ended=run.status.terminal)
        items = []
        if Capability.INBOX in store.capabilities:
            items = await store.inbox(run.id, limit=1_000)
        queue = None
        if run.wait_kind == WaitKind.QUEUE:
            [queue] = await Queues(store).stats(run.queue)
        steps = {}
        if any(one.is_open and one.kind == "step" for part in parts for one in part.walk()):
            steps = await _queued_steps(store, run)
        parked = {}
        for one in (each for part in parts for each in part.walk() if each.is_open):
            child = await store.find_one(one.child_id) if one.child_id else None
            if child is not None and child.is_parked:
                parked[child.id] = child.error or "its code cannot continue it"
        workers = None
        if Capability.WORKERS in store.capabilities and not run.status.terminal:
            workers = [worker for worker, alive in await workers_of(store) if alive]
        found = reasons(
            run,
            parts,
            now=await store.now(),
            inbox=len(items),
            signals=[item.name for item in items if item.kind == "signal"],
            queue=queue,
            steps=steps,
            workers=workers,
            place=failure_place(history),
            parked=parked,
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
    """The queued steps of a run by key, and the state of their tasks."""
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
    """A time, and how far away it is."""
    if out.utc:
        return iso(moment)
    clock = iso(moment)[11:19] if abs(moment - out.now).days < 1 else iso(moment)[:16]
    return f"{clock.replace('T', ' ')} UTC ({out.moment(moment)})"
