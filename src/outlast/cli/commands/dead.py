"""`outlast dead`: tasks that are not tried any more."""

from __future__ import annotations

import click

from outlast.cli.arguments import confirm
from outlast.cli.output import Cell, Column, neutral
from outlast.cli.session import Session, with_session
from outlast.model.query import check_limit
from outlast.model.queue_policy import scope_of
from outlast.ports.queue import Queue


@click.group("dead")
def dead_command() -> None:
    """Tasks that are not tried any more: list them, make them ready again, or remove them."""


@dead_command.command("ls")
@click.argument("queue", required=False)
@click.option("-n", "--limit", default=100, show_default=True)
@with_session
async def dead_ls(session: Session, *, queue: str | None, limit: int) -> None:
    """List the dead tasks of a queue and its steps, or of all, the longest dead first.

    \b
      outlast dead ls
      outlast dead ls video
    """
    out = session.out
    check_limit(limit)
    async with session.store() as store, store.queue() as tasks:
        dead = [
            one
            for line in await _lines(tasks, queue)
            for one in await tasks.dead(line, limit=limit)
        ]
    dead = sorted(dead, key=lambda one: (one.died_at, one.task.id))[:limit]
    if out.json:
        for one in dead:
            out.value({"reason": one.reason, "died_at": one.died_at, "task": one.task})
        return
    if not dead:
        out.note("no task is dead" if queue is None else f"no task of {queue!r} is dead")
        return
    columns = [
        Column("TASK", 12),
        Column("QUEUE", 6, 1),
        Column("RUN", 8, 1),
        Column("STEP", 6, 2),
        Column("DIED", None, 3),
        Column("REASON", 10),
    ]
    out.table(
        columns,
        [
            [
                Cell(one.task.id),
                Cell(one.task.queue),
                Cell(one.task.run_id),
                Cell(one.task.step or one.task.name),
                Cell(out.moment(one.died_at)),
                Cell(one.reason, "red"),
            ]
            for one in dead
        ],
    )


@dead_command.command("redrive")
@click.argument("queue")
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@with_session
async def dead_redrive(session: Session, *, queue: str, tasks: tuple[str, ...]) -> None:
    """Make dead tasks ready again with fresh attempts: all of a queue and its steps, or those named.

    \b
      outlast dead redrive video
    """
    async with session.store() as store, store.queue() as found:
        number = 0
        for line in await _lines(found, queue):
            number += await found.redrive(line, tasks or None)
    _tell(session, queue, "redriven", number)


@dead_command.command("purge")
@click.argument("queue")
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@with_session
async def dead_purge(session: Session, *, queue: str, tasks: tuple[str, ...], yes: bool) -> None:
    """Remove dead tasks for good: all of a queue and its steps, or those named.

    \b
      outlast dead purge video --yes
    """
    async with session.store() as store, store.queue() as found:
        lines, number = await _lines(found, queue), 0
        if not yes and not tasks:
            number = sum([len(await found.dead(line, limit=10_000)) for line in lines])
            await confirm(
                f"remove {number} dead tasks of {queue}?",
                f"add --yes to remove {number} tasks without being asked",
            )
        number = sum([await found.purge(line, tasks or None) for line in lines])
    _tell(session, queue, "purged", number)


async def _lines(tasks: Queue, queue: str | None) -> list[str]:
    """A queue and those of its steps, as `gpu/render` is one of `gpu`; or all that hold a task."""
    names = await tasks.names()
    if queue is None:
        return names
    return [queue, *(name for name in names if name != queue and scope_of(name) == queue)]


def _tell(session: Session, queue: str, what: str, number: int) -> None:
    if session.out.json:
        session.out.value({"queue": queue, what: number})
    else:
        session.out.line(f"{what} {number:,} of {neutral(queue)}")
