"""Queue policies and queue statistics as parameters and rows. The fair queue itself is functions/take_fair.sql,
which decides as `outlast.model.queue_policy` does, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.model.queue_policy import (
    KEPT_CHANGES,
    ExpectedPolicy,
    PolicyChange,
    QueuePolicy,
    Rate,
    decode_policy,
    encode_policy,
    stride,
)
from outlast.model.stats import QueueStats, counted_stats
from outlast.model.times import from_micros
from outlast.stores.postgres.rows import Row, moment, quote, unquote


def pack_policy(
    queue: str,
    policy: QueuePolicy | None,
    declared: QueuePolicy | None,
    seen: ExpectedPolicy | None,
    by: str,
) -> tuple[Any, ...]:
    """The parameters of `write_policy`, after the time."""
    rules = policy or QueuePolicy(queue=queue)
    return (
        queue,
        _text(policy),
        _text(declared),
        KEPT_CHANGES,
        seen is not None,
        None if seen is None else _text(seen.policy),
        quote(by),
        rules.paused,
        rules.concurrency,
        rules.key_concurrency,
        *_rate(rules.rate),
        *_rate(rules.key_rate),
        rules.ageing,
        list(rules.weights),
        [stride(rules, key) for key in rules.weights],
    )


def _text(policy: QueuePolicy | None) -> str | None:
    return None if policy is None else encode_policy(policy).decode()


def _rate(rate: Rate | None) -> tuple[int | None, int | None]:
    return (None, None) if rate is None else (rate.limit, round(rate.per * 1_000_000))


def to_policy_change(queue: str, row: Row) -> PolicyChange:
    """An audit line."""
    at, by, rules = row
    policy = None if rules is None else decode_policy(rules)
    return PolicyChange(queue=queue, at=from_micros(at), by=unquote(by), policy=policy)


def to_stats(queue: str, row: Row, keys: Sequence[Row], most: int) -> QueueStats:
    """How a queue stands, of the row of `queue_stats` and those of `key_stats`."""
    stored, ready, late, delayed, in_flight, dead, oldest, started = row
    return counted_stats(
        queue,
        None if stored is None else decode_policy(stored),
        keys,
        most,
        ready=ready + late,
        delayed=delayed,
        in_flight=in_flight,
        dead=dead,
        started=started,
        oldest=moment(oldest),
        all_seen=late <= most,  # leases are found by their end, not by who has waited longest
    )
