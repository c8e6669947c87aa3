"""`outlast schedules`: list schedules, and change them while they run."""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import click

from outlast.cli.arguments import confirm
from outlast.cli.output import Cell, Column, neutral
from outlast.cli.session import Session, client_of, with_session
from outlast.errors import InvalidValue, NotFound
from outlast.schedules import Schedules, ScheduleState

NOTE = click.option("--note", default="", help="Why; recorded in the audit of the schedule.")
COLOURS = {"active": "green", "paused": "yellow", "failed": "red"}


@click.group("schedules")
def schedules_command() -> None:
    """Schedules: list, pause and resume them, start a run now or for a time in the past."""


@schedules_command.command("ls")
@with_session
async def schedules_ls(session: Session) -> None:
    """List the schedules of the store, by name.

    \b
      outlast schedules ls
    """
    out = session.out
    async with _schedules(session) as schedules:
        found = await schedules.list()
    if out.json:
        for one in found:
            out.value(_record(one))
        return
    if not found:
        out.note("there are no schedules: declare one with App(…, schedules=[outlast.Schedule(…)])")
        return
    columns = [
        Column("SCHEDULE", 12),
        Column("STATUS", None),
        Column("WHEN", 8, 1),
        Column("WORKFLOW", 8, 2),
        Column("NEXT", None),
        Column("FIRED", None, 3),
    ]
    out.table(
        columns,
        [
            [
                Cell(one.name),
                Cell(one.status, COLOURS.get(one.status)),
                Cell(_when(one)),
                Cell(one.spec.workflow),
                Cell("" if one.next is None else out.moment(one.next)),
                Cell(f"{one.fired:,}"),
            ]
            for one in found
        ],
    )


@schedules_command.command("show")
@click.argument("name")
@with_session
async def schedules_show(session: Session, *, name: str) -> None:
    """Show a schedule, its state, and its audit.

    \b
      outlast schedules show nightly
    """
    out = session.out
    async with _schedules(session) as schedules:
        one = await schedules.get(name)
    if out.json:
        out.value(_record(one))
        return
    spec = one.spec
    out.line(f"{neutral(one.name)}: {neutral(spec.workflow)} {neutral(_when(one))}, {one.status}")
    out.line(f"  overlap {spec.overlap}, catch up {spec.catch_up}, jitter {spec.jitter:g} s")
    if one.next is not None:
        out.line(f"  next {out.moment(one.next)}")
    out.line(f"  fired {one.fired:,}, skipped {one.skipped:,}, missed {one.missed:,}")
    if one.last:
        out.line(f"  last {neutral(one.last)}")
    for change in one.changes:
        who = f" by {neutral(change.by)}" if change.by else ""
        why = f": {neutral(change.note)}" if change.note else ""
        out.line(f"  {out.moment(change.at)} {neutral(change.what)}{who}{why}")


@schedules_command.command("pause")
@click.argument("name")
@NOTE
@with_session
async def schedules_pause(session: Session, *, name: str, note: str) -> None:
    """Stop firing until the schedule is resumed. Firings during the pause are not made up.

    \b
      outlast schedules pause nightly --note "the database moves"
    """
    async with _schedules(session) as schedules:
        did = await schedules.pause(name, by=_who(), note=note)
    _tell(session, name, "paused" if did else "was already paused")


@schedules_command.command("resume")
@click.argument("name")
@NOTE
@with_session
async def schedules_resume(session: Session, *, name: str, note: str) -> None:
    """Fire again, from now on.

    \b
      outlast schedules resume nightly
    """
    async with _schedules(session) as schedules:
        did = await schedules.resume(name, by=_who(), note=note)
    _tell(session, name, "resumed" if did else "was not paused")


@schedules_command.command("trigger")
@click.argument("name")
@NOTE
@with_session
async def schedules_trigger(session: Session, *, name: str, note: str) -> None:
    """Start a run now, even if another one is running.

    \b
      outlast schedules trigger nightly
    """
    async with _schedules(session) as schedules:
        run = await schedules.trigger(name, by=_who(), note=note)
    _tell(session, name, f"started {neutral(run.id)}", run=run.id)


@schedules_command.command("backfill")
@click.argument("name")
@click.argument("start")
@click.argument("end")
@NOTE
@with_session
async def schedules_backfill(
    session: Session, *, name: str, start: str, end: str, note: str
) -> None:
    """Start a run for each firing from START up to, not including, END. Existing runs are left as they
    are.

    \b
      outlast schedules backfill nightly 2026-11-01T00:00Z 2026-11-15T00:00Z
    """
    async with _schedules(session) as schedules:
        runs = await schedules.backfill(name, _moment(start), _moment(end), by=_who(), note=note)
    _tell(session, name, f"{len(runs):,} firings have runs", runs=runs)


@schedules_command.command("rm")
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@with_session
async def schedules_rm(session: Session, *, name: str, yes: bool) -> None:
    """Delete a schedule. Its runs stay. A schedule that an app declares is created again when the app opens.

    \b
      outlast schedules rm nightly --yes
    """
    async with _schedules(session) as schedules:
        await schedules.get(name)
        if not yes:
            await confirm(f"remove schedule {name}?", "add --yes to remove it without confirmation")
        if not await schedules.delete(name):
            raise NotFound("schedule", name)
    _tell(session, name, "removed")


@asynccontextmanager
async def _schedules(session: Session) -> AsyncIterator[Schedules]:
    async with session.store() as store:
        yield client_of(store).schedules


def _tell(session: Session, name: str, did: str, **more: Any) -> None:
    if session.out.json:
        session.out.value({"schedule": name, "did": did, **more})
    else:
        session.out.line(f"{neutral(name)}: {did}")


def _record(one: ScheduleState) -> dict[str, Any]:
    spec = {field: getattr(one.spec, field) for field in one.spec.__struct_fields__}
    state = {field: getattr(one, field) for field in one.__struct_fields__ if field != "spec"}
    return {**spec, **state}


def _when(one: ScheduleState) -> str:
    spec = one.spec
    return f"every {spec.every:g} s" if spec.cron is None else f"{spec.cron} {spec.timezone}"


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(f"{text!r} is not a time: use 2026-11-15T02:00Z") from None


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in some containers
        return ""
