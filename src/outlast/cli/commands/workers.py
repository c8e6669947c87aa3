"""`outlast workers`: who is alive, since when, and what they hold."""

from __future__ import annotations

from datetime import datetime

import click

from outlast.cli.output import Cell, Column
from outlast.cli.session import Session, with_session
from outlast.model.worker import Worker
from outlast.ports.capabilities import Capability
from outlast.ports.store import Store


@click.command("workers")
@with_session
async def workers_command(session: Session) -> None:
    """Show the processes that work on the store: since when, when they were last heard of, and how
    many runs and tasks they held then. One that fell silent without stopping is dead.

    \b
      outlast workers
      outlast ls owner:app-…          the runs that one holds
    """
    out = session.out
    async with session.store() as store:
        known = await workers_of(store)
    if out.json:
        for worker, alive in known:
            out.value(
                {
                    "owner": worker.owner,
                    "alive": alive,
                    "host": worker.host,
                    "pid": worker.pid,
                    "version": worker.version,
                    "since": worker.started_at,
                    "seen": worker.seen_at,
                    "runs": worker.runs,
                    "tasks": worker.tasks,
                    "workflows": worker.workflows,
                    "queues": worker.queues,
                }
            )
        return
    if not known:
        out.note("no worker is running: outlast worker MODULE:APP starts one")
        return
    columns = [
        Column("WORKER", 12),
        Column("STATE"),
        Column("RUNS"),
        Column("TASKS", None, 2),
        Column("SEEN", None, 1),
        Column("SINCE", None, 3),
        Column("WHERE", 8, 4),
        Column("WORKFLOWS", 10, 5),
    ]
    out.table(
        columns,
        [
            [
                Cell(worker.owner, "bright_white"),
                Cell("alive", "green") if alive else Cell("dead", "red"),
                Cell(str(worker.runs)),
                Cell(str(worker.tasks)),
                Cell(out.moment(worker.seen_at)),
                Cell(out.moment(worker.started_at)),
                Cell(f"{worker.host}:{worker.pid}"),
                Cell(" ".join((*worker.workflows, *worker.queues))),
            ]
            for worker, alive in known
        ],
    )


async def workers_of(store: Store) -> list[tuple[Worker, bool]]:
    """The workers of a store, and whether each is alive."""
    if Capability.WORKERS not in store.capabilities:
        return []
    now = await store.now()
    return [(worker, await _is_alive(store, worker, now)) for worker in await store.workers()]


async def _is_alive(store: Store, worker: Worker, now: datetime) -> bool:
    if not worker.is_alive(now):
        return False
    # Where the database sees that a process has ended, nobody has to wait for its next word.
    watched = Capability.OWNER_GONE in store.capabilities
    return not (watched and await store.owner_gone(worker.owner))
