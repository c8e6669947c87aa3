"""`outlast db`: make or upgrade a store, and look whether all in it can be read."""

from __future__ import annotations

import click

from outlast.cli.main import Exit
from outlast.cli.output import Progress
from outlast.cli.session import Session, told_of, with_session
from outlast.errors import OutlastError
from outlast.model.event import PAYLOADS, payload_of
from outlast.model.query import RunQuery
from outlast.model.run import Run
from outlast.ports.store import Store


@click.group("db")
def db_command() -> None:
    """The store itself: make or upgrade it, check it."""


@db_command.command("upgrade")
@with_session
async def db_upgrade(session: Session) -> None:
    """Make the store if it is not there, and bring its tables up to date.

    \b
      outlast db upgrade --store sqlite:///shop.db
    """
    async with session.store(create=True) as store:
        told = told_of(store)
    version = told.get("schema_version", "")
    if session.out.json:
        session.out.value({"store": session.place.shown, "schema_version": version})
    else:
        at = f" (schema {version})" if version != "" else ""
        session.out.line(f"{session.place.shown} is up to date{at}")


@db_command.command("check")
@click.option("-n", "--limit", type=int, help="Only the newest so many runs.")
@with_session
async def db_check(session: Session, *, limit: int | None) -> None:
    """Read every run and its history, and tell what is not as it should be. Changes nothing.

    \b
      outlast db check
      outlast db check --limit 1000
    """
    if limit is not None and limit < 1:
        raise click.UsageError(f"--limit is {limit}: with at least 1, something is checked")
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
    """What is wrong with a run: gaps in its history, a record that does not fit, damaged bytes."""
    found: list[str] = []
    last = 0
    try:
        async for event in store.stream(run.id):
            if event.sequence != last + 1:
                found.append(f"event {event.sequence} comes after {last}: its history has a gap")
            last = event.sequence
            if event.type in PAYLOADS:
                payload_of(event)
    except OutlastError as error:
        found.append(str(error))
        return found
    now = await store.find_one(run.id)
    if now is not None and now.uid == run.uid and last < run.sequence:
        found.append(f"its record is at event {run.sequence}, its history ends with {last}")
    return found
