"""`outlast import`: a run from a file that `outlast export` wrote."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from outlast.cli.exports import Exported, read
from outlast.cli.session import Session, with_session
from outlast.errors import RunExists
from outlast.model.commit import Commit
from outlast.model.inbox import Send
from outlast.model.run import Run, Status
from outlast.model.times import NOW
from outlast.ports.capability import Capability
from outlast.ports.histories import accepted
from outlast.ports.store import Store


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--live", is_flag=True, help="Let runs that had not ended go on here.")
@with_session
async def import_command(session: Session, *, file: Path, live: bool) -> None:
    """Restore a run from a file, under its own id. Runs that had not ended come in paused, so that
    nothing is done twice; `outlast resume` or --live lets them go on.

    \b
      outlast import order-1.outlast --store sqlite:///copy.db
    """
    with file.open("rb") as opened:
        head, runs = read(opened, file.name)
    async with session.store(create=True) as store:
        for one in runs:
            there = await store.find_one(one.run.id)
            if there is not None:
                raise RunExists(there.id, there.uid)
        await restore(store, runs, live=live)
    if session.out.json:
        session.out.value({"id": head.root, "runs": len(runs)})
    else:
        session.out.line(f"{head.root} is restored ({len(runs)} runs) in {session.place.shown}")


async def restore(store: Store, runs: list[Exported], *, live: bool) -> None:
    """Write all runs of a file, or none."""
    commits = [_commit(one, live=live) for one in runs]
    if Capability.ATOMIC_BATCH in store.capabilities:
        outcomes = await store.commit(commits, atomic=len(commits) > 1)
        for outcome in outcomes:
            accepted(outcome)
    else:
        # The root comes last: what is cut off before has no root, and is removed.
        done: list[str] = []
        try:
            for commit in reversed(commits):
                accepted((await store.commit([commit]))[0])
                done.append(commit.run_id)
        except BaseException:
            for run_id in done:
                await store.delete(run_id)
            raise
    for one in runs:
        if one.items and not one.run.status.terminal:
            await store.send([Send(run_id=one.run.id, item=item) for item in one.items])


def _commit(one: Exported, *, live: bool) -> Commit:
    events = [msgspec.structs.replace(event, sequence=0, token=0) for event in one.events]
    return Commit(
        run_id=one.run.id,
        create=_record(one.run, live=live),
        events=tuple(events),
        timers=() if one.run.status.terminal else tuple(t for t in one.timers if not t.fired),
        facts=tuple(one.facts),
        entries=tuple(one.entries),
        activities=tuple(one.activities),
    )


def _record(run: Run, *, live: bool) -> Run:
    if run.status.terminal:
        return run
    if not live:
        return msgspec.structs.replace(run, status=Status.PAUSED, runnable_at=None)
    held = run.status in (Status.PENDING, Status.RUNNING) or run.owner is not None
    return msgspec.structs.replace(run, runnable_at=NOW if held else run.runnable_at)
