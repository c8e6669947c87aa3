"""A lease that is lost is no death: the process lives, says so, and its steps are tried again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

import outlast
from outlast.engine.definitions.retry import MAX_INTERRUPTIONS, MAX_LOST
from outlast.engine.operations.step import LeaseLossReport
from outlast.engine.runner.leases import LOST
from outlast.errors import RunFailed, TryAgain
from outlast.model import Claim, ClaimOnCreate, Commit
from outlast.model.event import payload_of
from outlast.model.json import to_json
from outlast.model.payloads import StepLost, StepStarted
from outlast.model.run_contents import Item, Send
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testing.crashable_process import CrashableProcess
from outlast.testing.scenario_result import EffectLedger

LEASE = 30.0
tries: list[int] = []


class Shaky(MemoryStore):
    """A store that cannot be reached for renewals while a step is tried for the first `bad` times."""

    bad = 0

    async def renew(self, claims: Any, ttl: float, **options: Any) -> list[Claim | None]:
        if len(tries) <= self.bad:
            raise TryAgain("the network is down")
        return await super().renew(claims, ttl, **options)


@outlast.step
async def here() -> str:
    tries.append(outlast.step_info().attempt)
    await takes(10 * LEASE)
    return "done"


@outlast.step(queue="far")
async def elsewhere() -> str:
    tries.append(outlast.step_info().attempt)
    await takes(10 * LEASE)
    return "done"


@outlast.step(at_most_once=True)
async def once() -> str:
    tries.append(outlast.step_info().attempt)
    await takes(10 * LEASE)
    return "done"


@outlast.step
async def item(number: int) -> str:
    tries.append(number)
    await takes(10 * LEASE)
    return "done"


@outlast.workflow
async def works_on_items() -> str:
    return (await outlast.map(item, [1]))[0]


@outlast.workflow
async def works_on_two() -> str:
    return " and ".join(await asyncio.gather(here(), here()))


@outlast.workflow
async def works_here() -> str:
    return await here()


@outlast.workflow
async def works_elsewhere() -> str:
    return await elsewhere()


@outlast.workflow
async def works_once() -> str:
    return await once()


@pytest.fixture
def store() -> Shaky:
    tries.clear()
    return Shaky(clock=VirtualClock())


def opened(store: MemoryStore) -> Any:
    """An app on it that runs all of the above."""
    workflows = (works_here, works_elsewhere, works_once, works_on_items, works_on_two)
    clock = store.clock
    assert isinstance(clock, VirtualClock)
    return app(*workflows, steps=[elsewhere], store=store, clock=clock, lease=LEASE)


async def told(store: Store) -> tuple[list[int], list[int]]:
    """Which attempts were begun, and which were lost, by the history."""
    payloads = [payload_of(event) for event in await store.history("r")]
    return (
        [one.attempt for one in payloads if isinstance(one, StepStarted)],
        [one.attempt for one in payloads if isinstance(one, StepLost)],
    )


@pytest.mark.proves("I10", "I4")
async def test_a_step_survives_more_lost_leases_than_deaths(store: Shaky) -> None:
    """Each loss is told by the process that lives, and is on record beside the attempt."""
    store.bad = MAX_INTERRUPTIONS + 2
    async with opened(store) as virtual:
        run = await virtual.start(works_here(), id="r")
        assert await run.result() == "done"
    begun, lost = await told(store)
    assert begun == tries == list(range(1, store.bad + 2))
    assert lost == begun[:-1]


class Late(MemoryStore):
    """A store that gives the run to another owner right after a step is recorded as begun, and answers late."""

    late = 0

    async def commit(self, commits: Any, **options: Any) -> list[Any]:
        answers = await super().commit(commits, **options)
        for one in commits:
            if self.late and any(event.type == "step.started" for event in one.events):
                self.late -= 1
                taken = Commit(run_id="r", force=True, hold=ClaimOnCreate("other", 3 * LEASE))
                await super().commit([taken])
                await self.clock.sleep(2 * LEASE)
        return answers


@pytest.mark.proves("I10", "I4")
@pytest.mark.parametrize("workflow", [works_here, works_once])
async def test_a_step_that_never_began_is_not_interrupted(workflow: Any) -> None:
    """A step that is recorded as begun, in a process that loses the run before it calls the step: that
    process reports it, so that no death is counted, and a step that may begin once begins."""
    tries.clear()
    store = Late(clock=VirtualClock())
    store.late = 1
    async with opened(store) as virtual:
        run = await virtual.start(workflow(), id="r")
        assert await run.result() == "done"
    assert tries == [2]
    begun, lost = await told(store)
    assert (begun, lost) == ([1, 2], [])


@pytest.mark.proves("I10", "I4")
async def test_a_report_about_another_attempt_does_not_stop_one_that_runs(store: Shaky) -> None:
    """A step that runs is not made again because of a report that an attempt of that number never began."""
    async with opened(store) as virtual:
        run = await virtual.start(works_once(), id="r")
        await virtual.clock.sleep(1)
        uid = (await virtual.get("r").status()).uid
        report = Raw(to_json(LeaseLossReport(life=uid, attempts={}, not_started={"once": 1})))
        await store.send([Send(run_id="r", item=Item(kind=LOST, data=report))])
        assert await run.result() == "done"
    assert tries == [1]


@pytest.mark.proves("I10", "I4")
async def test_a_queued_step_survives_more_lost_leases_than_deaths(store: Shaky) -> None:
    """Its task is given up after so many deliveries, but not the step: it gets another task."""
    store.bad = MAX_INTERRUPTIONS + 2
    async with opened(store) as virtual:
        run = await virtual.start(works_elsewhere(), id="r")
        assert await run.result() == "done"
    begun, lost = await told(store)
    assert begun == [1, 2]
    assert tries == [1, 1, 1, 2, 2, 2]
    assert lost == [1, 1, 1, 2, 2]


@pytest.mark.proves("I10")
@pytest.mark.parametrize("workflow", [works_here, works_elsewhere, works_on_items])
async def test_a_step_that_always_loses_its_lease_ends(store: Shaky, workflow: Any) -> None:
    """One that holds the interpreter for longer than a lease must not be tried for ever."""
    store.bad = 10_000
    async with opened(store) as virtual:
        run = await virtual.start(workflow(), id="r")
        with pytest.raises(RunFailed, match="its process lived and lost its lease"):
            await run.result()
    assert MAX_LOST < len(tries) <= MAX_LOST + 2 * MAX_INTERRUPTIONS


@pytest.mark.proves("I10")
async def test_what_must_not_be_repeated_is_not_even_so(store: Shaky) -> None:
    """A lost lease leaves open whether it has acted."""
    store.bad = 1
    async with opened(store) as virtual:
        run = await virtual.start(works_once(), id="r")
        with pytest.raises(RunFailed):
            await run.result()
    assert tries == [1]


@pytest.mark.proves("I10", "I4")
async def test_a_map_survives_more_lost_leases_than_deaths(store: Shaky) -> None:
    """The same holds for the items of a map: as often as it was cut off, that is on record."""
    store.bad = MAX_INTERRUPTIONS + 2
    async with opened(store) as virtual:
        run = await virtual.start(works_on_items(), id="r")
        assert await run.result() == "done"
    assert len(tries) == store.bad + 1
    assert (await told(store))[1] == list(range(1, store.bad + 1))


@pytest.mark.proves("I10")
async def test_a_loss_is_heard_by_who_waits_for_its_turn() -> None:
    """A suspect's next attempt begins when its turn has come: that its last one was lost may be read
    before, and counts all the same."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    await _dies(store, clock, works_on_two, steps=2)
    await store.send([await _loss_of(store)])
    async with app(works_on_two, store=store, clock=clock, lease=LEASE) as virtual:
        assert await virtual.get("r").result() == "done and done"
    assert (await told(store))[1] == [2, 2]


@outlast.workflow
async def works_on_three() -> str:
    return " and ".join(await asyncio.gather(here(), here(), here()))


@pytest.mark.proves("I10", "I24")
async def test_a_loss_that_is_heard_while_suspects_wait_leaves_none_waiting() -> None:
    """The first suspect runs, and the others wait for its quiet time, when the process that was taken for
    dead reports their attempts as lost: they are no suspects any more, and begin all the same."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    await _dies(store, clock, works_on_three, steps=3)
    async with app(works_on_three, store=store, clock=clock, lease=LEASE) as virtual:
        while len(tries) < 7:
            await clock.sleep(0.1)
        await store.send([await _loss_of(store)])
        assert await virtual.get("r").result(timeout=100 * LEASE) == "done and done and done"
    assert (await told(store))[1].count(2) == 3


async def _dies(store: Store, clock: VirtualClock, workflow: Any, *, steps: int) -> None:
    """Two processes begin all steps of a run, and die."""
    tries.clear()
    for deaths in (1, 2):
        process = CrashableProcess(store, clock, EffectLedger())
        dying = outlast.App(process.store, workflows=[workflow], lease=LEASE)
        process.attach(dying, asyncio.create_task(_lives(dying, workflow)))
        while len(tries) < steps * deaths:
            await clock.sleep(1)
        process.die()
        await process.discard()


async def _lives(dying: outlast.App, workflow: Any) -> None:
    await dying.open()
    await dying.start(workflow(), id="r")


async def _loss_of(store: Store) -> Send:
    """What a process says whose second attempts were lost."""
    keys = {event.step_name for event in await store.history("r") if event.type == "step.started"}
    run = await store.find_one("r")
    assert run is not None
    report = LeaseLossReport(life=run.uid, attempts=dict.fromkeys(keys, 2))
    return Send(run_id="r", item=Item(kind=LOST, id="lost", data=Raw(to_json(report))))
