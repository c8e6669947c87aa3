"""Moving under load: a client starts runs and signals them, a worker runs on every store, and movers
carry everything from each store to the next, killed with `kill -9` again and again.

The client knows a run by its id alone: told `Moved`, it asks at the address it was told. What bodies
did stands in a ledger outside the stores. In the end everything is held against that.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import outlast
from outlast.errors import Moved, NotFound, RunClosed, TryAgain
from outlast.model import Event, EventType, RunQuery, Status
from outlast.ports.store import Store
from tests.unit.transfer.load import WORKFLOWS, expected
from tests.unit.transfer.places import store_at

ROOT = Path(__file__).parents[3]
PATIENCE = 80.0
CLOCKS_AGREE = 1.0


@dataclass
class Campaign:
    """What happened, and what was found wrong with it."""

    places: list[str]
    ledger: Path
    seed: int
    kills: int
    """Of each stage."""
    figures: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    seen: dict[str, list[Event]] = field(default_factory=dict)
    movers: int = 0
    mover_begins: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def stops(self) -> int:
        """A signal to each run for each mover, so that there is always something going on."""
        return (self.kills + 1) * (len(self.places) - 1)


async def travel(campaign: Campaign, *, runs: int) -> None:
    """Start runs at the first place and move them along to the last."""
    chance = random.Random(campaign.seed)
    stores = {place: store_at(place) for place in dict.fromkeys(campaign.places)}
    for store in stores.values():
        await store.open()
    try:
        async with _processes(campaign, list(stores)):
            client = _Client(stores, campaign)
            clients = asyncio.gather(*(client.accompany(f"tour-{n}") for n in range(runs)))
            try:
                async with asyncio.timeout(PATIENCE):
                    await client.begun(runs)
                for source, target in pairwise(campaign.places):
                    await _stage(campaign, chance, source, target, stores)
                async with asyncio.timeout(PATIENCE):
                    await clients
            except TimeoutError:
                raise AssertionError(await _where_all_stand(campaign, stores)) from None
        await _judge(campaign, stores, runs)
    finally:
        for store in stores.values():
            await store.close()


class _Client:
    """Starts runs, signals them and waits for them, wherever they are."""

    def __init__(self, stores: dict[str, Store], campaign: Campaign) -> None:
        self._stores = stores
        self._apps = {
            place: outlast.App(store, workflows=WORKFLOWS) for place, store in stores.items()
        }
        self._campaign = campaign
        self._started = asyncio.Semaphore(0)
        self._where: dict[str, str] = {}

    async def begun(self, runs: int) -> None:
        """Return when so many runs have begun."""
        for _ in range(runs):
            await self._started.acquire()

    async def accompany(self, run_id: str) -> None:
        """One run from its start to its end."""
        stops, campaign = self._campaign.stops, self._campaign
        self._where[run_id] = campaign.places[0]
        app = self._apps[campaign.places[0]]
        await app.start("tour", [stops], id=run_id, on_conflict="fail", here=False)
        campaign.figures["runs"] += 1
        self._started.release()
        chance = random.Random(f"{campaign.seed} {run_id}")
        for stop in range(stops):
            async with campaign.mover_begins:
                while campaign.movers <= stop:
                    await campaign.mover_begins.wait()
            await asyncio.sleep(chance.expovariate(1 / 0.05))
            await self._signal(run_id, stop)
            campaign.figures["signals"] += 1
        result = await self._follow(run_id, "result")
        if result != expected(stops):
            campaign.broken.append(f"{run_id} gave {result}")

    async def _signal(self, run_id: str, stop: int) -> None:
        await self._follow(run_id, "signal", "go", stop, dedup=f"stop {stop}")

    async def _follow(self, run_id: str, verb: str, *args: object, **options: object) -> object:
        """Do it where the run is. What is sealed has an address already, but may not have arrived:
        then nobody knows it there yet."""
        while True:
            app = self._apps[self._where[run_id]]
            try:
                return await getattr(app.get(run_id), verb)(*args, **options)
            except Moved as moved:
                self._where[run_id] = moved.moved_to
                self._campaign.figures["told where"] += 1
            except (NotFound, TryAgain):
                await asyncio.sleep(0.02)
            except RunClosed:
                # The signal came before, and its answer was lost: only then can the run have ended.
                run = await self._stores[self._where[run_id]].find_one(run_id)
                if run is not None and not run.status.terminal:
                    self._campaign.broken.append(f"{run_id} is told to have ended, and has not")
                return None


async def _stage(
    campaign: Campaign,
    chance: random.Random,
    source: str,
    target: str,
    stores: dict[str, Store],
) -> None:
    """One stage: movers are killed until enough were, then one comes to its end."""
    left = campaign.kills
    while True:
        mover = await _start("mover", source, target)
        assert mover.stdout is not None
        assert await mover.stdout.readline() == b"ready\n"
        async with campaign.mover_begins:
            campaign.movers += 1
            campaign.mover_begins.notify_all()
        if left:
            left -= 1
            await asyncio.sleep(chance.expovariate(1 / 0.05))
            if mover.returncode is None:
                mover.kill()
                campaign.figures["movers killed"] += 1
            await mover.wait()
            await _remember(campaign, stores)
            continue
        said = await mover.stdout.read()
        assert await mover.wait() == 0, "a mover failed, see its traceback"
        campaign.figures["runs moved at last"] += int(said.split()[-1])
        campaign.figures["stages"] += 1
        return


async def _remember(campaign: Campaign, stores: dict[str, Store]) -> None:
    """Look at histories in between: they must be beginnings of what there is in the end."""
    for store in stores.values():
        for run_id in await store.run_ids(limit=50):
            history = await store.history(run_id)
            own = [event for event in history if event.type != EventType.WORKFLOW_MOVED]
            if len(own) > len(campaign.seen.get(run_id, ())):
                campaign.seen[run_id] = own


async def _where_all_stand(campaign: Campaign, stores: dict[str, Store]) -> str:
    """What there is to be seen of runs that do not come to their end."""
    lines = [f"after {campaign.movers} movers, {dict(campaign.figures)}:"]
    for place, store in stores.items():
        for run_id in await store.run_ids(limit=50):
            run = await store.get(run_id)
            last = (await store.history(run_id))[-1:]
            lines.append(
                f"{place} {run_id}: {run.status} {run.wait_kind}, due {run.runnable_at}, held by "
                f"{run.owner} until {run.claimed_until}, inbox {run.inbox}, {last}"
            )
    return "\n".join(lines)


async def _judge(campaign: Campaign, stores: dict[str, Store], runs: int) -> None:
    last = campaign.places[-1]
    effects: dict[tuple[str, str], list[float]] = {}
    for line in campaign.ledger.read_text().splitlines():
        run_id, key, _, _, _, when = line.split("\t")
        effects.setdefault((run_id, key), []).append(float(when))
        campaign.figures["bodies"] += 1
    broken = campaign.broken
    found = 0
    for place, store in stores.items():
        async for run in store.find_all(RunQuery()):
            if place != last:
                if run.moved_to is None:
                    broken.append(f"{run.id} is still {run.status} at {place}")
                continue
            if run.moved_to is not None:
                broken.append(f"{run.id} went on from the last place to {run.moved_to}")
                continue
            found += run.parent is None
            if run.status is not Status.COMPLETED:
                broken.append(f"{run.id} is {run.status}: {run.error}")
            broken += _read(run.id, await store.history(run.id), campaign, effects)
    if found != runs:
        broken.append(f"{found} runs of {runs} are at the last place")


def _read(
    run_id: str,
    history: list[Event],
    campaign: Campaign,
    effects: dict[tuple[str, str], list[float]],
) -> list[str]:
    """What is wrong with a history: gaps, tokens that fall, results twice, events that were there
    once, and bodies that ran after their result was recorded."""
    wrong = []
    if [event.sequence for event in history] != list(range(1, len(history) + 1)):
        wrong.append(f"{run_id}: gaps")
    tokens = [event.token for event in history]
    if tokens != sorted(tokens):
        wrong.append(f"{run_id}: tokens fall: {tokens}")
    once = [event.id for event in campaign.seen.get(run_id, ())]
    if once != [event.id for event in history[: len(once)]]:
        wrong.append(f"{run_id}: its history is not what it was")
    done = [event for event in history if event.type == EventType.STEP_COMPLETED]
    campaign.figures["steps"] += len(done)
    for key, number in Counter(event.step_name for event in done).items():
        if number > 1:
            wrong.append(f"{run_id}: {key} has {number} results")
    for event in done:
        begun = effects.get((run_id, event.step_name), [])
        campaign.figures["bodies again"] += len(begun) - 1
        if not begun:
            wrong.append(f"{run_id}: {event.step_name} has a result and never ran")
        # A body that ran once has run before its result, whatever the clocks of two machines say.
        recorded = event.timestamp.timestamp() + CLOCKS_AGREE
        if len(begun) > 1 and max(begun) > recorded:
            wrong.append(f"{run_id}: {event.step_name} ran after its result was recorded")
    return wrong


@asynccontextmanager
async def _processes(campaign: Campaign, places: list[str]) -> AsyncIterator[None]:
    """A worker on each store."""
    workers = [await _start("worker", place, str(campaign.ledger)) for place in places]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert await worker.stdout.readline() == b"ready\n"
        yield
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            assert await worker.wait() == 0
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()


async def _start(*args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.unit.transfer.load",
        *args,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=asyncio.subprocess.PIPE,
    )
