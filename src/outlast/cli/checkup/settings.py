"""Is the store, and the doorbell, set up as it should be?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

from outlast.cli.checkup.findings import Finding
from outlast.cli.moments import length
from outlast.cli.session import told_of
from outlast.ports.capability import Durability
from outlast.ports.store import Store
from outlast.urls import resolve_doorbell

SKEW_SECONDS = 2.0
SURVIVES = {
    Durability.NOTHING: "nothing: it is gone with the process",
    Durability.PROCESS_CRASH: "a crash of the process",
    Durability.POWER_LOSS: "a loss of power",
    Durability.NODE_LOSS: "the loss of a machine",
}
RING_SECONDS, MOST_RINGS = 3_600, 1_000


async def settings_of(store: Store) -> AsyncIterator[Finding]:
    """What the store and its server are like."""
    told = told_of(store)
    level = store.durability
    safe = level >= Durability.POWER_LOSS
    yield Finding(
        "ok" if safe else "warning",
        f"an acknowledged commit survives {SURVIVES[level]} (D{level.value})",
        "" if safe else "see the store's page in the docs for safer settings",
    )
    for finding in (*_sqlite(told), *_postgres(told), *_redis(told)):
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


def _sqlite(told: dict[str, Any]) -> Iterator[Finding]:
    if told.get("wal_reset_race"):
        yield Finding(
            "ok",
            f"SQLite {told.get('sqlite_version')} has the WAL-reset race; outlast avoids what sets "
            "it off",
            "no other program may checkpoint this file; SQLite after 3.51.2 has it mended",
        )


def _postgres(told: dict[str, Any]) -> Iterator[Finding]:
    if "postgres_version" not in told:
        return
    yield Finding(
        "ok", f"PostgreSQL {told['postgres_version']}, schema {told.get('schema_version')}"
    )
    for warning in told.get("warnings") or ():
        what, _, remedy = str(warning).partition(": ")
        yield Finding("problem", what, remedy)
    if told.get("pooled"):
        yield Finding(
            "ok",
            "there is a pooler in between: a worker that dies is noticed when its lease ends",
            "give workers a URL of the server itself to have it noticed at once",
        )


def _redis(told: dict[str, Any]) -> Iterator[Finding]:
    if "append_only" not in told:
        return
    fsync = told.get("fsync")
    yield Finding("ok", f"Redis {told.get('version')}, appendfsync {fsync}")
    if told["append_only"] is False:
        yield Finding(
            "problem",
            "Redis writes no append-only file: a restart loses runs",
            "CONFIG SET appendonly yes, and in redis.conf",
        )
    elif fsync != "always":
        yield Finding(
            "warning",
            f"appendfsync is {fsync}: the last second or two may be lost with the power",
            "CONFIG SET appendfsync always, and in redis.conf, if that must not be",
        )
    eviction = str(told.get("eviction") or "noeviction")
    if eviction.startswith("allkeys"):
        yield Finding(
            "problem",
            f"Redis may evict runs ({eviction})",
            "CONFIG SET maxmemory-policy noeviction",
        )
    elif eviction == "unknown":
        yield Finding(
            "warning",
            "Redis does not tell whether it evicts keys",
            "see in its settings that maxmemory-policy is noeviction",
        )


async def doorbell_of(url: str) -> AsyncIterator[Finding]:
    """What the SQS queue is like that wakes workers. Rings are worth nothing after a while."""
    told = await resolve_doorbell(url).describe()
    waiting = int(told.get("ApproximateNumberOfMessages", "0"))
    yield Finding("ok", f"the doorbell {told.get('QueueUrl', url)} answers; {waiting:,} rings wait")
    if told.get("FifoQueue") == "true":
        yield Finding(
            "problem",
            "the doorbell is a FIFO queue, which holds rings back",
            "use a standard queue",
        )
    if int(told.get("DelaySeconds", "0")):
        yield Finding(
            "warning",
            f"rings are held back for {told['DelaySeconds']} s",
            "set DelaySeconds of the queue to 0",
        )
    if int(told.get("MessageRetentionPeriod", "0")) > RING_SECONDS:
        yield Finding(
            "warning",
            f"rings are kept for {length(float(told['MessageRetentionPeriod']))}, and wake workers "
            "for nothing",
            "set MessageRetentionPeriod of the queue to 60",
        )
    if "RedrivePolicy" in told:
        yield Finding(
            "warning",
            "rings that nobody needs go to a queue of dead letters",
            "remove the RedrivePolicy of the queue: a ring carries nothing",
        )
    if waiting > MOST_RINGS:
        yield Finding(
            "warning",
            f"{waiting:,} rings wait: nobody listens",
            "start workers with App(…, doorbell=…); the store is looked at now and then all the same",
        )
