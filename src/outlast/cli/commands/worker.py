"""`outlast worker`, `outlast workers` and `outlast dev`: run an app, list the workers of a store, and run an
app that restarts at every change of its code.

`outlast dev` is one process. At a change the app is closed, which releases its runs, and the process
executes itself again with the new code; runs continue from their last recorded step.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from datetime import datetime
from functools import partial
from pathlib import Path

import click

from outlast.cli.app_runner import (
    Stop,
    app_name,
    file_of,
    leave,
    load_app,
    log_to_stderr,
    stopping,
    workflows_of,
)
from outlast.cli.output import Cell, Column
from outlast.cli.session import Session, with_session
from outlast.model.claim import Worker
from outlast.ports.port import Capability
from outlast.ports.store import Store
from outlast.worker.background_loop import new_loop

POLL_INTERVAL_S = 0.3


@click.command("worker")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option(
    "--drain",
    type=click.FloatRange(min=0),
    default=25.0,
    show_default=True,
    metavar="SECONDS",
    help="How long executing steps may take to finish after a signal to stop.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@partial(with_session, loop_factory=new_loop)
async def worker_command(session: Session, *, app: str | None, drain: float, verbose: bool) -> None:
    """Run an app: continue its unfinished runs and take new ones. On SIGTERM or Ctrl-C it stops claiming
    runs, lets steps finish for --drain seconds, releases the rest, and exits. A second signal ends the
    grace period.

    \b
      outlast worker shop:app
      outlast worker shop.py
    """
    log_to_stderr(verbose=verbose)
    loaded = load_app(app, session.place.url if session.store_given else None)
    loaded.drain = drain
    with stopping() as stop:
        stop.hurry = loaded.hurry
        async with loaded:
            session.out.note(f"running {workflows_of(loaded)}; stop with Ctrl-C or SIGTERM")
            await stop.asked.wait()
            session.out.note(f"stopping: steps have {drain:g} s to finish")
    session.out.note("stopped")
    leave(stop)


@click.command("workers")
@with_session
async def workers_command(session: Session) -> None:
    """Show the processes that work on the store: since when, their last heartbeat, and how many runs and
    tasks they held then. A worker that stopped sending heartbeats without a shutdown is dead.

    \b
      outlast workers
      outlast ls owner:app-…          the runs of one worker
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
    # Where the database detects the end of a process, its next heartbeat need not be awaited.
    watched = Capability.OWNER_GONE in store.capabilities
    return not (watched and await store.owner_gone(worker.owner))


@click.command("dev")
@click.argument("app", metavar="[APP.PY]", required=False)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@with_session
async def dev_command(session: Session, *, app: str | None, verbose: bool) -> None:
    """Run the app of a file, and restart it whenever its code changes.

    \b
      outlast dev app.py
      outlast dev shop:app
    """
    log_to_stderr(verbose=verbose)
    out = session.out
    # A file that is written while the code is imported counts as a change.
    before = _files(app_name(app))
    with stopping() as stop:
        try:
            loaded = load_app(app, session.place.url if session.store_given else None)
        except (click.UsageError, KeyboardInterrupt):
            raise
        except Exception:  # noqa: BLE001 - it is the user's code, and will be mended
            out.note(traceback.format_exc())
            out.note("this code cannot be loaded; waiting for a change")
            await _changed(stop, before)
        else:
            files = {**_files(app_name(app)), **before}
            stop.hurry = loaded.hurry
            async with loaded:
                out.note(f"running {workflows_of(loaded)}; restarts when the code changes")
                await _changed(stop, files)
    if stop.by is None:
        out.note("the code has changed")
        sys.stdout.flush()
        # The same program with the same arguments.
        os.execv(  # noqa: S606
            sys.executable, [sys.executable, "-m", "outlast", *sys.argv[1:]]
        )
    out.note("stopped")
    leave(stop)


def _files(named: str) -> dict[Path, float]:
    """The files of the app's code, and their modification times."""
    file = file_of(named)
    home = file.resolve().parent if file is not None else Path.cwd()
    loaded = {
        Path(path) for m in list(sys.modules.values()) if (path := getattr(m, "__file__", None))
    }
    own = {
        path for path in loaded if path.is_relative_to(home) and "site-packages" not in path.parts
    }
    return {path: _written(path) for path in own | set(home.glob("*.py"))}


async def _changed(stop: Stop, files: dict[Path, float]) -> None:
    """Return when a file has changed, or after a signal to stop."""
    while not stop.asked.is_set():
        try:
            await asyncio.wait_for(stop.asked.wait(), POLL_INTERVAL_S)
        except TimeoutError:
            if any(_written(path) != written for path, written in files.items()):
                return


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
