"""QueueStats: the numbers of a named queue, at a cost that does not grow with its size."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from outlast.model.queue_policy import QueuePolicy

COUNTED = 10_000
"""A store that has to count rows stops at this number."""
KEYS_SHOWN = 100


class KeyStats(Struct, frozen=True, kw_only=True):
    """One key of a queue. `at_least` as in `QueueStats`."""

    key: str
    ready: int
    in_flight: int
    blocked_by: str | None = None
    at_least: tuple[str, ...] = ()

    def said(self, count: str) -> str:
        """A count as text; ``10000+`` if counting stopped there."""
        return _said(self, count)


class QueueStats(Struct, frozen=True, kw_only=True):
    """A queue, including the queues of its steps.

    Numbers are exact, except those that `at_least` names: these are lower bounds, because counting
    stopped. `at_least` names `oldest` if an older task may exist, and `keys` if there are more than
    `KEYS_SHOWN`.

    `oldest` is the time since which the oldest ready task has been ready. `blocked_by` names the limit
    that prevents ready tasks from starting now: ``paused``, ``concurrency`` or ``rate``, of a key
    ``key_concurrency`` or ``key_rate``.
    """

    queue: str
    ready: int
    delayed: int
    in_flight: int
    dead: int
    oldest: datetime | None = None
    policy: QueuePolicy | None = None
    blocked_by: str | None = None
    keys: tuple[KeyStats, ...] = ()
    at_least: tuple[str, ...] = ()

    def said(self, count: str) -> str:
        """A count as text; ``10000+`` if counting stopped there."""
        return _said(self, count)


def capped(most: int, **counts: int) -> dict[str, Any]:
    """Fields of `QueueStats` or `KeyStats` from numbers that were counted up to `most` + 1."""
    return {
        **{name: min(count, most) for name, count in counts.items()},
        "at_least": tuple(name for name, count in counts.items() if count > most),
    }


def counted_stats(
    queue: str,
    policy: QueuePolicy | None,
    keys: Sequence[Sequence[Any]],
    most: int,
    *,
    ready: int,
    delayed: int,
    in_flight: int,
    dead: int,
    started: int,
    oldest: datetime | None,
    all_seen: bool,
) -> QueueStats:
    """The stats of a queue from numbers that were counted up to `most` + 1: its totals, and for each key
    what is ready, in flight, and recently started. Without `all_seen`, a task older than `oldest` may exist."""
    rules = policy or QueuePolicy(queue=queue)
    counts = capped(most, ready=ready, delayed=delayed, in_flight=in_flight, dead=dead)
    not_all = {"oldest": not all_seen, "keys": len(keys) > KEYS_SHOWN}
    counts["at_least"] += tuple(name for name, is_true in not_all.items() if is_true)
    return QueueStats(
        queue=queue,
        **counts,
        oldest=oldest,
        policy=policy,
        blocked_by=blocked_by(rules, in_flight=in_flight, started=started),
        keys=tuple(
            KeyStats(
                key=key,
                **capped(most, ready=ready, in_flight=in_flight),
                blocked_by=key_blocked_by(rules, key, in_flight=in_flight, started=started),
            )
            for key, ready, in_flight, started in keys[:KEYS_SHOWN]
        ),
    )


def _said(stats: KeyStats | QueueStats, count: str) -> str:
    return f"{getattr(stats, count)}{'+' if count in stats.at_least else ''}"


def blocked_by(policy: QueuePolicy, *, in_flight: int, started: int) -> str | None:
    """The limit of the whole queue that prevents tasks from starting now."""
    if policy.paused:
        return "paused"
    if policy.concurrency is not None and in_flight >= policy.concurrency:
        return "concurrency"
    if policy.rate is not None and started >= policy.rate.limit:
        return "rate"
    return None


def key_blocked_by(policy: QueuePolicy, key: str, *, in_flight: int, started: int) -> str | None:
    """The limit of a key that prevents its tasks from starting now."""
    if key and policy.key_concurrency is not None and in_flight >= policy.key_concurrency:
        return "key_concurrency"
    if key and policy.key_rate is not None and started >= policy.key_rate.limit:
        return "key_rate"
    return None
