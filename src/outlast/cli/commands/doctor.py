"""`outlast doctor`: is all as it should be, and if not, what to do about it."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any, NamedTuple

import click

from outlast.cli.codes import Exit
from outlast.cli.commands.queues import queue_names
from outlast.cli.moments import length
from outlast.cli.neutral import neutral
from outlast.cli.session import Session, told_of, with_session
from outlast.errors import OutlastError, Unsupported
from outlast.model.run import Run
from outlast.ports.capability import Capability, Durability
from outlast.ports.store import Store
from outlast.query import parse, search

SKEW_SECONDS = 2.0
STUCK_AFTER = timedelta(minutes=1)
LOOKED_AT = 10_000
SURVIVES = {
    Durability.NOTHING: "nothing: it is gone with the process",
    Durability.PROCESS_CRASH: "a crash of the process",
    Durability.POWER_LOSS: "a loss of power",
    Durability.NODE_LOSS: "the loss of a machine",
}


class Finding(NamedTuple):
    """Something that was looked at: `level` is ok, warning or problem."""

    level: str
    what: str
    remedy: str = ""


@click.command("doctor")
@with_session
async def doctor_command(session: Session) -> None:
    """Check versions, durability, clock, schema, stuck runs and dead tasks. Each finding comes with
    its remedy. Exits with 1 if there is a problem; warnings alone are 0.

    \b
      outlast doctor
      outlast doctor --json
    """
    out, found = session.out, [*_versions()]
    try:
        async with session.store() as store:
            found += [
                Finding("ok", f"the store {session.place.shown} opens, its tables are current")
            ]
            found += [one async for one in examine(store)]
    except OutlastError as error:
        found.append(
            Finding(
                "problem",
                str(error),
                "see the message; `outlast --help` says how the store is chosen",
            )
        )
    for one in found:
        if out.json:
            out.value(one._asdict())
            continue
        mark, colour = {"ok": ("✓", "green"), "warning": ("!", "yellow")}.get(
            one.level, ("✗", "red")
        )
        out.line(f"{out.styled(mark, colour)} {neutral(one.what)}")
        if one.remedy:
            out.line(f"    {neutral(one.remedy)}", "cyan")
    if any(one.level == "problem" for one in found):
        raise SystemExit(Exit.FOUND)


def _versions() -> list[Finding]:
    told = f"outlast {version('outlast')}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return [Finding("ok", told)]


async def examine(store: Store) -> AsyncIterator[Finding]:
    """What a store and the runs in it look like."""
    told = told_of(store)
    for finding in _durability(store, told):
        yield finding
    skew = (await store.now() - datetime.now(UTC)).total_seconds()
    if abs(skew) > SKEW_SECONDS:
        yield Finding(
            "warning",
            f"this machine's clock is {length(abs(skew))} {'behind' if skew > 0 else 'ahead of'} the store's",
            "leases and timers go by the store's clock; let NTP set both",
        )
    else:
        yield Finding("ok", "the clocks of this machine and the store agree")
    if Capability.FIND in store.capabilities:
        async for finding in _runs(store):
            yield finding
    async for finding in _dead(store):
        yield finding


def _durability(store: Store, told: dict[str, Any]) -> list[Finding]:
    level = store.durability
    found = [
        Finding(
            "ok" if level >= Durability.POWER_LOSS else "warning",
            f"an acknowledged commit survives {SURVIVES[level]} (D{level.value})",
            ""
            if level >= Durability.POWER_LOSS
            else "see the store's page in the docs for safer settings",
        )
    ]
    if told.get("wal_reset_race"):
        found.append(
            Finding(
                "ok",
                f"SQLite {told.get('sqlite_version')} has the WAL-reset race; outlast avoids what sets it off",
                "no other program may checkpoint this file; SQLite after 3.51.2 has it mended",
            )
        )
    for warning in told.get("warnings") or ():
        what, _, remedy = str(warning).partition(": ")
        found.append(Finding("problem", what, remedy))
    if told.get("append_only") is False:
        found.append(
            Finding(
                "problem",
                "Redis writes no append-only file: a restart loses runs",
                "CONFIG SET appendonly yes, and in redis.conf",
            )
        )
    eviction = str(told.get("eviction") or "noeviction")
    if eviction.startswith("allkeys"):
        found.append(
            Finding(
                "problem",
                f"Redis may evict runs ({eviction})",
                "CONFIG SET maxmemory-policy noeviction",
            )
        )
    return found


async def _runs(store: Store) -> AsyncIterator[Finding]:
    now = await store.now()
    page = await search(store, parse("status:open"), limit=LOOKED_AT, budget=LOOKED_AT)
    late = now - STUCK_AFTER
    stuck = [run for run in page.runs if _due(run, late) and not _held(run, now)]
    mismatched = [run for run in page.runs if run.wait_kind == "mismatch"]
    if stuck:
        names = ", ".join(sorted({run.workflow for run in stuck}))
        yield Finding(
            "problem",
            f"{len(stuck):,} runs could go on for more than {length(STUCK_AFTER.total_seconds())} and no worker takes them ({names}), such as {stuck[0].id}",
            f"start a worker that has their code: outlast worker MODULE:APP; then outlast why {stuck[0].id}",
        )
    if mismatched:
        yield Finding(
            "problem",
            f"{len(mismatched):,} runs are parked because their code and their history disagree, such as {mismatched[0].id}",
            f"outlast why {mismatched[0].id}; deploy code that fits, then outlast resume --where 'wait:mismatch'",
        )
    if not stuck and not mismatched:
        more = "the newest " if page.next is not None else ""
        yield Finding("ok", f"none of {more}{len(page.runs):,} open runs is stuck")


def _due(run: Run, late: datetime) -> bool:
    return run.runnable_at is not None and run.runnable_at < late and run.updated_at < late


def _held(run: Run, now: datetime) -> bool:
    return run.owner is not None and run.claimed_until is not None and run.claimed_until > now


async def _dead(store: Store) -> AsyncIterator[Finding]:
    try:
        queue = store.queue()
    except Unsupported:
        return
    async with queue:
        for name in await queue_names(store):
            dead = await queue.dead(name, limit=1_000)
            if dead:
                many = "1 task is" if len(dead) == 1 else f"{len(dead):,} tasks are"
                yield Finding(
                    "warning",
                    f"{many} dead in queue {name}: {dead[0].reason}",
                    f"outlast dead ls {name}, then outlast dead redrive {name}",
                )
