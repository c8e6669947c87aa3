"""QueueStats: how a named queue stands, at a cost that does not grow with it."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from outlast.model.flow import Flow

COUNTED = 10_000
"""Nobody counts further: a count of so many means "so many or more"."""
KEYS_SHOWN = 100


class KeyStats(Struct, frozen=True, kw_only=True):
    """One key of a queue."""

    key: str
    ready: int
    in_flight: int
    blocked_by: str | None = None


class QueueStats(Struct, frozen=True, kw_only=True):
    """A queue with all its steps. Counts end at `COUNTED`, keys at `KEYS_SHOWN`.

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
    flow: Flow | None = None
    blocked_by: str | None = None
    keys: tuple[KeyStats, ...] = ()


def blocked_by(flow: Flow, *, in_flight: int, started: int) -> str | None:
    """The rule of the whole queue that lets nothing begin now."""
    if flow.paused:
        return "paused"
    if flow.concurrency is not None and in_flight >= flow.concurrency:
        return "concurrency"
    if flow.rate is not None and started >= flow.rate.limit:
        return "rate"
    return None


def key_blocked_by(flow: Flow, key: str, *, in_flight: int, started: int) -> str | None:
    """The rule of its key that lets nothing of a line begin now."""
    if key and flow.key_concurrency is not None and in_flight >= flow.key_concurrency:
        return "key_concurrency"
    if key and flow.key_rate is not None and started >= flow.key_rate.limit:
        return "key_rate"
    return None
