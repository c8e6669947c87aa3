"""A takeover whose read of the history is late: by then a newer owner has written."""

from __future__ import annotations

import msgspec
import pytest

import outlast
from outlast.model import Event
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app

replays: list[str] = []


class LateReads(MemoryStore):
    """Once, it returns a history to whose events a claim of the far future belongs."""

    is_late = False

    async def history(
        self, run_id: str, *, after: int = 0, limit: int | None = None, timeout: float | None = None
    ) -> list[Event]:
        events = await super().history(run_id, after=after, limit=limit, timeout=timeout)
        if self.is_late and events:
            self.is_late = False
            return [*events[:-1], msgspec.structs.replace(events[-1], token=2**40)]
        return events


@outlast.workflow
async def waits() -> str:
    replays.append("replayed")
    return str(await outlast.wait_for_signal("go"))


@pytest.mark.proves("I4")
async def test_code_never_sees_the_history_of_a_newer_owner() -> None:
    """The claim is fenced before any code runs, and the run goes on with a claim that is the newest."""
    clock = VirtualClock()
    store = LateReads(clock=clock)
    async with app(waits, store=store, clock=clock) as virtual:
        await virtual.start(waits(), id="r")
        await virtual.clock.sleep(1)
    replays.clear()
    store.is_late = True
    async with app(waits, store=store, clock=clock) as virtual:
        await virtual.get("r").signal("go", "on")
        while store.is_late:
            await virtual.clock.sleep(1)
        assert replays == []
        assert await virtual.get("r").result() == "on"
