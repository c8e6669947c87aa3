"""`outlast dead`: tasks that are not tried any more."""

from __future__ import annotations

import click

from outlast.cli.asking import confirm
from outlast.cli.neutral import neutral
from outlast.cli.session import Session, with_session
from outlast.cli.table import Cell, Column


@click.group("dead")
def dead_command() -> None:
    """Tasks that are not tried any more: list them, make them ready again, or remove them."""


@dead_command.command("ls")
@click.argument("queue", default="default")
@click.option("-n", "--limit", default=100, show_default=True)
@with_session
async def dead_ls(session: Session, *, queue: str, limit: int) -> None:
    """List the dead tasks of a queue, the longest dead first.

    \b
      outlast dead ls video
    """
    out = session.out
    async with session.store() as store, store.queue() as tasks:
        dead = await tasks.dead(queue, limit=limit)
    if out.json:
        for one in dead:
            out.value({"reason": one.reason, "died_at": one.died_at, "task": one.task})
        return
    if not dead:
        out.note(f"no task of {queue!r} is dead")
        return
    columns = [
        Column("TASK", 12),
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
    """Make dead tasks ready again with fresh attempts: all of a queue, or those named.

    \b
      outlast dead redrive video
    """
    async with session.store() as store, store.queue() as found:
        number = await found.redrive(queue, tasks or None)
    _tell(session, queue, "redriven", number)


@dead_command.command("purge")
@click.argument("queue")
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@with_session
async def dead_purge(session: Session, *, queue: str, tasks: tuple[str, ...], yes: bool) -> None:
    """Remove dead tasks for good: all of a queue, or those named.

    \b
      outlast dead purge video --yes
    """
    async with session.store() as store, store.queue() as found:
        if not yes and not tasks:
            number = len(await found.dead(queue, limit=10_000))
            await confirm(
                f"remove {number} dead tasks of {queue}?",
                f"add --yes to remove {number} tasks without being asked",
            )
        number = await found.purge(queue, tasks or None)
    _tell(session, queue, "purged", number)


def _tell(session: Session, queue: str, what: str, number: int) -> None:
    if session.out.json:
        session.out.value({"queue": queue, what: number})
    else:
        session.out.line(f"{what} {number:,} of {neutral(queue)}")
