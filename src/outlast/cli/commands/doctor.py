"""`outlast doctor`: checks the store, its workers and runs, and the wake-up queue; each finding has a remedy."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import click

from outlast.cli.commands.queue import queue_names
from outlast.cli.commands.worker import workers_of
from outlast.cli.main import Exit
from outlast.cli.output import ago, length, neutral
from outlast.cli.session import Session, description_of, settings_here, with_session
from outlast.errors import OutlastError, Unsupported
from outlast.model.run import MOVING, Run, WaitKind
from outlast.ports.port import Capability, Durability
from outlast.ports.store import Store
from outlast.query import count, parse, search
from outlast.urls import resolve_wakeup_channel


@click.command("doctor")
@click.option(
    "--wakeup-channel", metavar="URL", help="An SQS queue that wakes workers, to be checked too."
)
@with_session
async def doctor_command(session: Session, *, wakeup_channel: str | None) -> None:
    """Check versions, durability, settings of the server, clock, schema, workers, stuck and half-moved
    runs, dead tasks, and the wake-up channel. Each finding comes with its remedy. Exits with 1 if there is a
    problem; warnings alone are 0.

    \b
      outlast doctor
      outlast doctor --json --wakeup-channel 'sqs://wakeups?region=eu-central-1'
    """
    out, found = session.out, [versions()]
    try:
        async with session.store() as store:
            found.append(
                Finding("ok", f"the store {session.place.shown} opens, its tables are current")
            )
            found += [one async for one in settings_of(store)]
            found += [one async for one in life_of(store)]
    except OutlastError as error:
        found.append(_in_the_way(error))
    wakeup_channel = wakeup_channel or settings_here()[0].get("wakeup_channel")
    if wakeup_channel:
        try:
            found += [one async for one in wakeup_channel_of(str(wakeup_channel))]
        except OutlastError as error:
            found.append(_in_the_way(error))
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


def _in_the_way(error: OutlastError) -> Finding:
    return Finding(
        "problem", str(error), "see the message; `outlast --help` explains how the store is chosen"
    )


STUCK_AFTER = timedelta(minutes=1)
LOOKED_AT = 10_000


async def life_of(store: Store) -> AsyncIterator[Finding]:
    """Findings about workers, runs and queues of a store."""
    if Capability.WORKERS in store.capabilities:
        async for finding in _workers(store):
            yield finding
        async for finding in _troubles(store):
            yield finding
    if Capability.FIND in store.capabilities:
        async for finding in _runs(store):
            yield finding
        async for finding in _moving(store):
            yield finding
    async for finding in _unserved(store):
        yield finding
    async for finding in _dead(store):
        yield finding


async def _workers(store: Store) -> AsyncIterator[Finding]:
    known = await workers_of(store)
    now = await store.now()
    alive = [worker for worker, lives in known if lives]
    many = "1 worker is alive" if len(alive) == 1 else f"{len(alive)} workers are alive"
    yield Finding("ok", many if alive else "no worker is running")
    for worker, lives in known:
        if not lives:
            yield Finding(
                "warning",
                f"worker {worker.owner} on {worker.host} (pid {worker.pid}) sent its last heartbeat "
                f"{ago(worker.seen_at, now)} and did not shut down; it held {worker.runs} runs",
                "other workers take over its runs when its leases expire. Check why it ended: killed, "
                "out of memory, disconnected? It is listed for a day",
            )


async def _troubles(store: Store) -> AsyncIterator[Finding]:
    for worker, lives in await workers_of(store):
        for run_id, trouble in worker.troubles.items() if lives else ():
            yield Finding(
                "problem",
                f"run {run_id} is stuck in worker {worker.owner}: {trouble}",
                f"outlast why {run_id}; restart that worker, and report it with outlast export {run_id}",
            )


async def _runs(store: Store) -> AsyncIterator[Finding]:
    now = await store.now()
    page = await search(store, parse("status:open"), limit=LOOKED_AT, budget=LOOKED_AT)
    late = now - STUCK_AFTER
    stuck = [run for run in page.runs if _due(run, late) and not _held(run, now)]
    mismatched = [run for run in page.runs if run.wait_kind == WaitKind.MISMATCH]
    if stuck:
        names = ", ".join(sorted({run.workflow for run in stuck}))
        yield Finding(
            "problem",
            f"{len(stuck):,} runs have been runnable for more than {length(STUCK_AFTER.total_seconds())} "
            f"and no worker claims them ({names}), such as {stuck[0].id}",
            f"start a worker that has their code: outlast worker MODULE:APP; then outlast why "
            f"{stuck[0].id}",
        )
    if mismatched:
        yield Finding(
            "problem",
            f"{len(mismatched):,} runs are parked because their code does not match their history, "
            f"such as {mismatched[0].id}",
            f"outlast why {mismatched[0].id}; deploy code that matches: its workers claim them. "
            "To retry with the same code: outlast resume --where 'wait:mismatch'",
        )
    bugs = [run for run in page.runs if run.wait_kind == WaitKind.BUG]
    if bugs:
        yield Finding(
            "problem",
            f"{len(bugs):,} runs are parked because their code raised a programming error, such as {bugs[0].id}",
            f"outlast why {bugs[0].id}; deploy corrected code: its workers claim them. "
            "To retry with the same code: outlast resume --where 'wait:bug'",
        )
    if not stuck and not mismatched and not bugs:
        more = "the newest " if page.next is not None else ""
        yield Finding("ok", f"none of {more}{len(page.runs):,} open runs is stuck")


def _due(run: Run, late: datetime) -> bool:
    return run.runnable_at is not None and run.runnable_at < late and run.updated_at < late


def _held(run: Run, now: datetime) -> bool:
    return run.owner is not None and run.claimed_until is not None and run.claimed_until > now


async def _moving(store: Store) -> AsyncIterator[Finding]:
    sealed = parse(f"status:cancelled wait:{MOVING}")
    number = await count(store, sealed)
    if number.number:
        page = await search(store, sealed, limit=1)
        where = next((run.moved_to for run in page.runs), None) or "URL"
        yield Finding(
            "problem",
            f"{number} runs are closed because they are being moved to {where}, and do not advance until "
            "the move is complete",
            f"outlast move --to {where}, unless a move is running",
        )


async def _unserved(store: Store) -> AsyncIterator[Finding]:
    """Queued steps that have been ready for some time in a queue that no live worker serves."""
    if not {Capability.WORKERS, Capability.TASKS} <= store.capabilities:
        return
    served = {name for worker, lives in await workers_of(store) if lives for name in worker.queues}
    now = await store.now()
    for name in await queue_names(store):
        if name in served:
            continue
        for task in await store.find_available_tasks(queue=name, limit=1):
            if task.run_id and task.enqueued_at < now - STUCK_AFTER:
                yield Finding(
                    "problem",
                    f"a step was put into queue {name} {ago(task.enqueued_at, now)}, and no live "
                    f"worker serves the queue; the step belongs to run {task.run_id}",
                    f"start a worker that has their code: outlast worker MODULE:APP; then outlast why "
                    f"{task.run_id}",
                )


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


SKEW_SECONDS = 2.0
SURVIVES = {
    Durability.NOTHING: "nothing: it is lost with the process",
    Durability.PROCESS_CRASH: "a crash of the process",
    Durability.POWER_LOSS: "a loss of power",
    Durability.NODE_LOSS: "the loss of a machine",
}
MAX_WAKEUP_AGE_S, MAX_WAITING_WAKEUPS = 3_600, 1_000


async def settings_of(store: Store) -> AsyncIterator[Finding]:
    """Findings about the settings of the store and its server."""
    described = description_of(store)
    level = store.durability
    safe = level >= Durability.POWER_LOSS
    yield Finding(
        "ok" if safe else "warning",
        f"an acknowledged commit survives {SURVIVES[level]} (D{level.value})",
        "" if safe else "see the store's page in the docs for safer settings",
    )
    for finding in (*_sqlite(described), *_postgres(described), *_redis(described)):
        yield finding
    skew = (await store.now() - datetime.now(UTC)).total_seconds()
    if abs(skew) > SKEW_SECONDS:
        yield Finding(
            "warning",
            f"this machine's clock is {length(abs(skew))} "
            f"{'behind' if skew > 0 else 'ahead of'} the store's",
            "leases and timers go by the store's clock; let NTP set both",
        )
    else:
        yield Finding("ok", "the clocks of this machine and the store agree")


def _sqlite(described: dict[str, Any]) -> Iterator[Finding]:
    if described.get("wal_reset_race"):
        yield Finding(
            "ok",
            f"SQLite {described.get('sqlite_version')} has the WAL-reset race; outlast avoids its trigger "
            "it off",
            "no other program may checkpoint this file; SQLite after 3.51.2 has the fix",
        )


def _postgres(described: dict[str, Any]) -> Iterator[Finding]:
    if "postgres_version" not in described:
        return
    yield Finding(
        "ok",
        f"PostgreSQL {described['postgres_version']}, schema {described.get('schema_version')}",
    )
    for warning in described.get("warnings") or ():
        what, _, remedy = str(warning).partition(": ")
        yield Finding("problem", what, remedy)
    if described.get("pooled"):
        yield Finding(
            "ok",
            "a connection pooler is in between: a crashed worker is detected when its lease expires",
            "give workers the URL of the server itself, so that a crash is detected immediately",
        )


def _redis(described: dict[str, Any]) -> Iterator[Finding]:
    if "append_only" not in described:
        return
    fsync = described.get("fsync")
    yield Finding("ok", f"Redis {described.get('version')}, appendfsync {fsync}")
    if described["append_only"] is False:
        yield Finding(
            "problem",
            "Redis writes no append-only file: a restart loses runs",
            "CONFIG SET appendonly yes, and in redis.conf",
        )
    elif fsync != "always":
        yield Finding(
            "warning",
            f"appendfsync is {fsync}: a power loss may lose the last one or two seconds",
            "to prevent that, CONFIG SET appendfsync always, and in redis.conf",
        )
    eviction = str(described.get("eviction") or "noeviction")
    if eviction.startswith("allkeys"):
        yield Finding(
            "problem",
            f"Redis may evict runs ({eviction})",
            "CONFIG SET maxmemory-policy noeviction",
        )
    elif eviction == "unknown":
        yield Finding(
            "warning",
            "Redis does not report whether it evicts keys",
            "check in its settings that maxmemory-policy is noeviction",
        )


async def wakeup_channel_of(url: str) -> AsyncIterator[Finding]:
    """Findings about the SQS queue of wake-ups. A wake-up is useless after a short time."""
    described = await resolve_wakeup_channel(url).describe()
    waiting = int(described.get("ApproximateNumberOfMessages", "0"))
    yield Finding(
        "ok",
        f"the wake-up channel {described.get('QueueUrl', url)} answers; {waiting:,} wake-ups wait",
    )
    if described.get("FifoQueue") == "true":
        yield Finding(
            "problem",
            "the wake-up channel is a FIFO queue, which delays wake-ups",
            "use a standard queue",
        )
    if int(described.get("DelaySeconds", "0")):
        yield Finding(
            "warning",
            f"wake-ups are delayed by {described['DelaySeconds']} s",
            "set DelaySeconds of the queue to 0",
        )
    if int(described.get("MessageRetentionPeriod", "0")) > MAX_WAKEUP_AGE_S:
        yield Finding(
            "warning",
            f"wake-ups are kept for {length(float(described['MessageRetentionPeriod']))}, and wake workers "
            "for nothing",
            "set MessageRetentionPeriod of the queue to 60",
        )
    if "RedrivePolicy" in described:
        yield Finding(
            "warning",
            "expired wake-ups go to a dead-letter queue",
            "remove the RedrivePolicy of the queue: a wake-up contains no data",
        )
    if waiting > MAX_WAITING_WAKEUPS:
        yield Finding(
            "warning",
            f"{waiting:,} wake-ups wait: no worker receives them",
            "start workers with App(…, wakeup_channel=…); workers also poll the store",
        )


class Finding(NamedTuple):
    """One result of a check: `level` is ok, warning or problem."""

    level: str
    what: str
    remedy: str = ""


def versions() -> Finding:
    """The versions of outlast, Python and SQLite in this process."""
    try:
        own = version("outlast")
    except PackageNotFoundError:
        own = "(not installed: run from its source)"
    described = f"outlast {own}, Python {platform.python_version()}"
    return Finding("ok", f"{described}, SQLite {sqlite3.sqlite_version}")
