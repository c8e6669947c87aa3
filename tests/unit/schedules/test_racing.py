"""Ten processes that all keep the same schedules, some of them killed: one run a firing."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import outlast
from tests.stores.sqlite_processes.crew import Crew
from tests.unit.schedules.racers import LEASE, job, keep, open_store

PROCESSES, KILLED = 10, 5
FIRINGS = 4


@pytest.mark.server
@pytest.mark.proves("I5", "I7", "I21")
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
async def test_ten_schedulers_race(tmp_path: Path, kind: str) -> None:
    """They begin together and declare the same two schedules; half of them are killed. Each firing
    has one run, no firing is left out, and each run has done its work."""
    ledger = tmp_path / "ledger"
    ledger.touch()
    place = str(tmp_path / "s.db") if kind == "sqlite" else f"s_{uuid.uuid4().hex[:12]}"
    crew = Crew()
    async with open_store(kind, place) as store:
        for _ in range(PROCESSES):
            crew.hire(keep, kind, place, str(ledger))
        await asyncio.to_thread(crew.start_together)
        watching = outlast.App(store)
        await fired(watching, 1)
        for member in crew.members[:KILLED]:
            member.kill()
        await fired(watching, FIRINGS)
        for member in crew.members[KILLED:]:
            member.pipe.send("stop")
        for member in crew.members[KILLED:]:
            assert await asyncio.to_thread(member.pipe.recv) == "stopped"
            member.process.join()
            member.pipe.close()
        async with outlast.App(store, workflows=[job], lease=LEASE) as last:
            os.environ["LEDGER"] = str(ledger)
            for name in ("tick", "tock"):
                await last.client.schedules.pause(name)
            states = {one.name: one for one in await last.client.schedules.list()}
            runs = [run.id async for run in last.client.find(workflow="job")]
            for run_id in runs:
                await last.get(run_id).result(timeout=60)
    done = Counter(ledger.read_text().splitlines())
    assert set(done) == set(runs)
    for name, state in states.items():
        times = sorted(run_id for run_id in runs if run_id.startswith(f"{name}@"))
        assert len(times) == state.fired
        moments = [datetime.strptime(one.partition("@")[2], "%Y%m%dT%H%M%S%z") for one in times]
        # Without a gap: a second apart, from the first to the last.
        assert (moments[-1] - moments[0]).total_seconds() == len(moments) - 1
        assert state.missed == 0


async def fired(app: outlast.App, count: int) -> None:
    """Return when each schedule has fired so often."""
    async with asyncio.timeout(60):
        while True:
            states: list[Any] = await app.client.schedules.list()
            if len(states) == 2 and all(one.fired >= count for one in states):
                return
            await asyncio.sleep(0.1)
