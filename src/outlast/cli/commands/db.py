"""`outlast db`: create or upgrade a store, and check that all runs in it can be read."""

from __future__ import annotations

import click

from outlast.cli.main import Exit
from outlast.cli.output import Progress
from outlast.cli.session import Session, description_of, with_session
from outlast.errors import OutlastError
from outlast.model.event import PAYLOADS, payload_of
from outlast.model.query import RunQuery
from outlast.model.run import Run
from outlast.ports.store import Store


@click.group("db")
def db_command() -> None:
    """The store itself: create, upgrade or check it."""


@db_command.command("upgrade")
@with_session
async def db_upgrade(session: Session) -> None:
    """Create the store if it does not exist, and migrate its tables.

    \b
      outlast db upgrade --store sqlite:///shop.db
    """
    async with session.store(create=True) as store:
        described = description_of(store)
    version = described.get("schema_version", "")
    if session.out.json:
        session.out.value({"store": session.place.shown, "schema_version": version})
    else:
        at = f" (schema {version})" if version != "" else ""
        session.out.line(f"{session.place.shown} is up to date{at}")


@db_command.command("check")
@click.option("-n", "--limit", type=int, help="Only the newest N runs.")
@with_session
async def db_check(session: Session, *, limit: int | None) -> None:
    """Read every run and its history, and report problems. Changes nothing.

    \b
      outlast db check
      outlast db check --limit 1000
    """
    if limit is not None and limit < 1:
        raise click.UsageError(f"--limit is {limit}: use at least 1")
    out, runs, wrong = session.out, 0, 0
    progress = Progress("checked", limit)
    async with session.store() as store:
        async for run in store.find_all(RunQuery(limit=200)):
            if limit is not None and runs >= limit:
                break
            runs += 1
            for problem in await problems_of(store, run):
                wrong += 1
                if out.json:
                    out.value({"run_id": run.id, "problem": problem})
                else:
                    out.line(out.short(f"{run.id}: {problem}"), "red")
            progress.at(runs)
    progress.end()
    out.note(f"{runs:,} runs read, {wrong:,} problems")
    if wrong:
        raise SystemExit(Exit.FOUND)


async def problems_of(store: Store, run: Run) -> list[str]:
    """The problems of a run: gaps in its history, a record that does not match it, damaged data."""
    found: list[str] = []
    last = 0
    try:
        async for event in store.stream(run.id):
            if event.sequence != last + 1:
                found.append(f"event {event.sequence} follows {last}: the history has a gap")
            last = event.sequence
            if event.type in PAYLOADS:
                payload_of(event)
    except OutlastError as error:
        found.append(str(error))
        return found
    now = await store.find_one(run.id)
    if now is not None and now.uid == run.uid and last < run.sequence:
        found.append(f"the record is at event {run.sequence}, the history ends with {last}")
    return found
