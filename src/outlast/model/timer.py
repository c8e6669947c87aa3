"""Timer: a durable wake-up kept by the store for engines that ask it which are due.

outlast's own engine does not need these rows: its timers are events, and `runnable_at` wakes the
run. They are here for those who bring an engine of their own.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Timer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A wake-up of a run. Scheduling an id again changes nothing; firing happens once."""

    run_id: str
    id: str
    fire_at: datetime
    fired: bool = False
