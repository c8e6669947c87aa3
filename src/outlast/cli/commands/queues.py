"""`outlast queues`: how many tasks wait, and how many are dead."""

from __future__ import annotations

from contextlib import suppress

import click

from outlast.cli.commands.workers import workers_of
from outlast.cli.session import Session, with_session
from outlast.cli.table import Cell, Column
from outlast.errors import Unsupported
from outlast.ports.store import Store

DEAD_AT_MOST = 1_000


@click.command("queues")
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@with_session
async def queues_command(session: Session, *, names: tuple[str, ...]) -> None:
    """Show queues: those that are named, or all that hold a task in whatever state, or that a worker
    serves.

    \b
      outlast queues
      outlast queues default video
    """
    out = session.out
    rows = []
    async with session.store() as store:
        served: dict[str, int] = {}
        for worker, alive in await workers_of(store):
            for name in worker.queues if alive else ():
                served[name] = served.get(name, 0) + 1
        known = await queue_names(store, names)
        async with store.queue() as queue:
            for name in known:
                dead = len(await queue.dead(name, limit=DEAD_AT_MOST))
                rows.append((name, await queue.len(name), dead, served.get(name, 0)))
    if out.json:
        for name, ready, dead, workers in rows:
            out.value({"queue": name, "ready": ready, "dead": dead, "workers": workers})
        return
    columns = [Column("QUEUE", 8), Column("READY"), Column("DEAD"), Column("WORKERS", None, 1)]
    more = {DEAD_AT_MOST: f"{DEAD_AT_MOST}+"}
    out.table(
        columns,
        [
            [
                Cell(name),
                Cell(str(ready)),
                Cell(more.get(dead, str(dead)), "red" if dead else None),
                Cell(str(workers)),
            ]
            for name, ready, dead, workers in rows
        ],
    )


async def queue_names(store: Store, given: tuple[str, ...] = ()) -> list[str]:
    """The queues that are known: those given, or the default, those that hold a task in whatever
    state, and those that a worker serves."""
    if given:
        return sorted({*given})
    found = {"default"}
    for worker, alive in await workers_of(store):
        found |= set(worker.queues) if alive else set()
    async with store.queue() as queue:
        with suppress(Unsupported):  # a foreign queue: name them
            found |= set(await queue.names())
    return sorted(found)
