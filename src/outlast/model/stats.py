"""QueueStats: how a named queue stands, at a cost that does not grow with it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from outlast.model.queue_policy import QueuePolicy

COUNTED = 10_000
"""A store that has to count what it is asked for counts no further."""
KEYS_SHOWN = 100


class KeyStats(Struct, frozen=True, kw_only=True):
    """One key of a queue. `at_least` as in `QueueStats`."""

    key: str
    ready: int
    in_flight: int
    blocked_by: str | None = None
    at_least: tuple[str, ...] = ()

    def said(self, count: str) -> str:
        """A count as people read it: ``10000+`` where nobody has counted further."""
        return _said(self, count)


class QueueStats(Struct, frozen=True, kw_only=True):
    """A queue with all its steps.

    Numbers are exact, but for those that `at_least` names: there are so many or more, because nobody
    counted further. So are `oldest` (so long or longer) and `keys`, of which `KEYS_SHOWN` are told.

    `oldest` is since when the one that waits longest has been ready. `blocked_by` names the rule
    that keeps ready tasks from beginning now: ``paused``, ``concurrency`` or ``rate``, of a key
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
        """A count as people read it: ``10000+`` where nobody has counted further."""
        return _said(self, count)


def capped(most: int, **counts: int) -> dict[str, Any]:
    """Fields of `QueueStats` or `KeyStats`, of numbers that were counted to `most` + 1."""
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
    """How a queue stands, of numbers that were counted to `most` + 1: its own, and for each key what is
    ready, in flight, and was started of late. Without `all_seen`, something may be older than `oldest`."""
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
    """The rule of the whole queue that lets nothing begin now."""
    if policy.paused:
        return "paused"
    if policy.concurrency is not None and in_flight >= policy.concurrency:
        return "concurrency"
    if policy.rate is not None and started >= policy.rate.limit:
        return "rate"
    return None


def key_blocked_by(policy: QueuePolicy, key: str, *, in_flight: int, started: int) -> str | None:
    """The rule of its key that lets nothing of a line begin now."""
    if key and policy.key_concurrency is not None and in_flight >= policy.key_concurrency:
        return "key_concurrency"
    if key and policy.key_rate is not None and started >= policy.key_rate.limit:
        return "key_rate"
    return None
