"""A process hears what others send to the runs that it holds, without looking for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import outlast
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.errors import RunCancelled
from outlast.model.decision import News
from outlast.ports.notifier import MOST_BYTES, from_message, to_message
from tests.worker.places import KINDS, place_of

LEASE = 3600.0
"""So long that looking at every third of it would be too late."""

begun: asyncio.Event


@outlast.step
async def work() -> None:
    begun.set()
    await asyncio.Event().wait()


@outlast.workflow
async def works() -> None:
    await work()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.proves("I24")
async def test_a_run_that_works_hears_a_cancel_from_another_process(
    kind: str, tmp_path: Path
) -> None:
    """Its holder is rung for by name, or sees that somebody has written, and stops the step."""
    global begun
    begun = asyncio.Event()
    place = place_of(kind, tmp_path)
    async with (
        place.fresh() as store,
        place.store() as elsewhere,
        outlast.App(store, workflows=[works], lease=LEASE) as app,
    ):
        run = await app.start(works, id="r")
        await begun.wait()
        await Client(elsewhere, codec=JsonCodec()).cancel("r", "stop")
        ending = asyncio.ensure_future(run.result())
        while not ending.done():
            # It may not listen yet, and a ring that is lost does no harm.
            elsewhere.notifier.ring(News.RUNS, runs=["r"])
            await asyncio.wait([ending], timeout=0.1)
        with pytest.raises(RunCancelled):
            await ending


@pytest.mark.parametrize("runs", [[], ["r"], ['odd "id" ☃', "b~c/d"]])
def test_a_ring_travels_as_text(runs: list[str]) -> None:
    """Who rang, what for, and which runs it is about."""
    message = to_message("me", News.RUNS | News.ENDS, runs)
    sender, news, named = from_message(message)
    assert (sender, news, sorted(named)) == ("me", News.RUNS | News.ENDS, sorted(runs))


def test_a_ring_for_very_many_names_none() -> None:
    """It would be too long; their holders look by themselves after a while."""
    message = to_message("me", News.RUNS, [f"run-{n}" for n in range(10_000)])
    assert len(message.encode()) < MOST_BYTES
    assert from_message(message) == ("me", News.RUNS, [])


@pytest.mark.parametrize("message", ["", "me", "me x", "me 1 [1]", "me 1 {", "me 99999"])
def test_a_strange_ring_is_a_ring(message: str) -> None:
    """Of an older outlast, or of somebody else: whoever waits looks."""
    assert from_message(message)[1]
