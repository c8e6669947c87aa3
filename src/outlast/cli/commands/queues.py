"""`outlast queues`: how many tasks wait, and how many are dead."""

from __future__ import annotations

import click

from outlast.cli.session import Session, with_session
from outlast.cli.table import Cell, Column
from outlast.ports.capability import Capability
from outlast.ports.store import Store

LOOKED_AT = 10_000
DEAD_AT_MOST = 1_000


@click.command("queues")
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@with_session
async def queues_command(session: Session, *, names: tuple[str, ...]) -> None:
    """Show queues: those that are named, and those in which tasks are ready.

    \b
      outlast queues
      outlast queues default video
    """
    out = session.out
    rows = []
    async with session.store() as store:
        known = await queue_names(store, names)
        async with store.queue() as queue:
            for name in known:
                dead = len(await queue.dead(name, limit=DEAD_AT_MOST))
                rows.append((name, await queue.len(name), dead))
    if out.json:
        for name, ready, dead in rows:
            out.value({"queue": name, "ready": ready, "dead": dead})
        return
    columns = [Column("QUEUE", 8), Column("READY"), Column("DEAD")]
    more = {DEAD_AT_MOST: f"{DEAD_AT_MOST}+"}
    out.table(
        columns,
        [
            [Cell(name), Cell(str(ready)), Cell(more.get(dead, str(dead)), "red" if dead else None)]
            for name, ready, dead in rows
        ],
    )


async def queue_names(store: Store, given: tuple[str, ...] = ()) -> list[str]:
    """The queues that are known: those given, the default, and those of tasks that are ready. A
    queue in which nothing is ready is not listed by a store; name it."""
    found = {*given}
    if not given:
        found.add("default")
        if Capability.TASKS in store.capabilities:
            tasks = await store.find_available_tasks(limit=LOOKED_AT)
            found |= {task.queue for task in tasks}
    return sorted(found)
