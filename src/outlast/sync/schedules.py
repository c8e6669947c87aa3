"""Schedules, for callers that block."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from outlast.schedules import Schedule, ScheduleState
from outlast.schedules import Schedules as AsyncSchedules

if TYPE_CHECKING:
    from outlast.sync.handles import RunBlocking


class Schedules:
    """What `Client.schedules` gives."""

    def __init__(self, call: RunBlocking, schedules: Callable[[], AsyncSchedules]) -> None:
        self._call = call
        self._schedules = schedules

    def create(self, schedule: Schedule) -> None:
        """Keep a new schedule; `RunExists` if there is one of that name that has not ended."""
        self._call(self._schedules().create(schedule))

    def change(self, schedule: Schedule, *, by: str = "", note: str = "") -> bool:
        """Let a schedule be another one from now on; whether it was."""
        return self._call(self._schedules().change(schedule, by=by, note=note))

    def pause(self, name: str, *, by: str = "", note: str = "") -> bool:
        """Fire no more until it is resumed; whether it was not paused before."""
        return self._call(self._schedules().pause(name, by=by, note=note))

    def resume(self, name: str, *, by: str = "", note: str = "") -> bool:
        """Fire again, from now on; whether it was paused, or its run had been ended."""
        return self._call(self._schedules().resume(name, by=by, note=note))

    def trigger(self, name: str, *, by: str = "", note: str = "") -> str:
        """Start a run now; its id."""
        return self._call(self._schedules().trigger(name, by=by, note=note)).id

    def backfill(
        self, name: str, start: datetime, end: datetime, *, by: str = "", note: str = ""
    ) -> list[str]:
        """Start a run for each firing from `start` up to, not including, `end`; their ids."""
        return self._call(self._schedules().backfill(name, start, end, by=by, note=note))

    def delete(self, name: str) -> bool:
        """Remove a schedule; whether it was there. Its runs stay."""
        return self._call(self._schedules().delete(name))

    def get(self, name: str) -> ScheduleState:
        """A schedule and where it stands; `NotFound` if there is none."""
        return self._call(self._schedules().get(name))

    def list(self) -> list[ScheduleState]:
        """All schedules, by name."""
        return self._call(self._schedules().list())
