"""Statistics of queues, and when their next task is ready. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from outlast.model.queue_policy import QueuePolicy, decode_policy, scope_of, scopes
from outlast.model.stats import KEYS_SHOWN, QueueStats, counted_stats
from outlast.model.times import from_micros, to_micros
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.fair_queue import NEVER, within
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.tasks import LOAD_POLICY, queue_names

COUNT_DUE = query("count_due")
COUNT_HELD = query("count_held")
COUNT_LATE = query("count_late")
COUNT_STARTS = query("count_starts")
FIND_KEYS = query("find_keys")
COUNT_DEAD = query("count_dead")
FIND_NEXT_READY = query("find_next_ready")
FIND_NEXT_START = query("find_next_start")


def stats_of(connection: Connection, scope: str, now: datetime, most: int) -> QueueStats:
    """The statistics of a queue, with all its steps."""
    policy, rules = _rules(connection, scope)
    bounds = _bounds(rules, now, most + 1)
    ready = delayed = in_flight = dead = 0
    times = []
    all_seen = True
    for queue in queue_names(connection):
        if scope_of(queue) != scope:
            continue
        asked = {**bounds, "queue": queue}
        [(free, later, first)] = connection.execute(COUNT_DUE, asked).fetchall()
        [(late, first_late)] = connection.execute(COUNT_LATE, asked).fetchall()
        ready, delayed = ready + free + late, delayed + later
        in_flight += scalar(connection, COUNT_HELD, asked)
        times += [first, first_late]
        if late > most:
            all_seen = False  # expired leases are sorted by their end, not by the longest wait
        dead += scalar(connection, COUNT_DEAD, asked)
    oldest = min((at for at in times if at is not None), default=None)
    started = scalar(connection, COUNT_STARTS, (scope, bounds["since"]))
    return counted_stats(
        scope,
        policy,
        connection.execute(FIND_KEYS, bounds).fetchall(),
        most,
        ready=ready,
        delayed=delayed,
        in_flight=in_flight,
        dead=dead,
        started=started,
        oldest=None if oldest is None else from_micros(oldest),
        all_seen=all_seen,
    )


def next_ready_at(connection: Connection, queues: Sequence[str], now: datetime) -> datetime | None:
    """When a task may become ready by time alone."""
    times = []
    for scope, own in scopes(queues).items():
        _, rules = _rules(connection, scope)
        for queue in own:
            asked = {"queue": queue, "now": to_micros(now)}
            times.append(scalar(connection, FIND_NEXT_READY, asked))
        if rules.rate is not None:
            per = round(rules.rate.per * 1_000_000)
            asked = {"scope": scope, "per": per, "since": to_micros(now) - per}
            times.append(scalar(connection, FIND_NEXT_START, asked))
    first = min((at for at in times if at is not None and at != NEVER), default=None)
    return None if first is None else from_micros(first)


def _rules(connection: Connection, scope: str) -> tuple[QueuePolicy | None, QueuePolicy]:
    rows = connection.execute(LOAD_POLICY, (scope,)).fetchall()
    policy = decode_policy(rows[0][0]) if rows and rows[0][0] is not None else None
    return policy, policy or QueuePolicy(queue=scope)


def _bounds(rules: QueuePolicy, now: datetime, counted: int) -> dict[str, object]:
    at = to_micros(now)
    per = 0.0 if rules.rate is None else rules.rate.per
    key_per = 0.0 if rules.key_rate is None else rules.key_rate.per
    return {
        **within(rules.queue),
        "now": at,
        "since": at - round(per * 1_000_000),
        "key_since": at - round(key_per * 1_000_000),
        "counted": counted,
        # To know whether a limit is reached, count up to it.
        "held": max(counted, rules.concurrency or 0),
        "key_held": max(counted, rules.key_concurrency or 0),
        "key_begun": 0 if rules.key_rate is None else rules.key_rate.limit,
        "keys": KEYS_SHOWN + 1,
    }
