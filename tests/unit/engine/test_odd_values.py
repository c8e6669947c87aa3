"""Values that workflow code passes on, and no store would take: refused at the call. What slips through
parks the run: a commit that is refused after every replay would repeat what came before it for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidValue, NotSerializable, OutlastError, RunFailed
from outlast.model import Status
from outlast.model.event import payload_of
from outlast.model.payloads import MapProgress
from outlast.model.validation import MAX_PAYLOAD_BYTES
from outlast.testing import app
from tests.unit.engine.test_slice import settle

LONE = "\ud800"
HALF = "x" * (9 * 1024 * 1024)
PATIENCE = 30


@outlast.step
async def counts(left: str, right: str = "") -> int:
    return len(left) + len(right)


@outlast.step
async def echoes(text: str) -> str:
    return text


async def _body() -> None:
    return None


async def _stops(_: int) -> outlast.Stop[int]:
    return outlast.Stop(1)


@outlast.workflow
async def takes(left: str, right: str) -> None:
    return None


async def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    function(*args, **kwargs)


ODD: dict[str, Callable[[], Awaitable[Any]]] = {
    "arguments of a step": lambda: counts(HALF, HALF),
    "arguments of a child": lambda: takes(HALF, HALF),
    "an attribute that is no number": lambda: _call(outlast.set_attributes, x=float("nan")),
    "an attribute that is no text": lambda: _call(outlast.set_attributes, x=LONE),
    "a published name": lambda: _call(outlast.publish, **{LONE: 1}),
    "the name of a branch": lambda: _call(outlast.branch, LONE, True),
    "a choice": lambda: _call(outlast.branch, "way", LONE),
    "a long choice": lambda: _call(outlast.branch, "way", "x" * (MAX_PAYLOAD_BYTES + 1)),
    "the name of a scope": lambda: outlast.scope(_body, name=LONE),
    "the name of a loop": lambda: outlast.loop(_stops, 0, name=LONE),
}


@outlast.workflow
async def tries(kind: str) -> str:
    await echoes("a step before, so that the run has begun")
    try:
        await ODD[kind]()
    except OutlastError as error:
        return type(error).__name__
    return "nothing"


@pytest.mark.parametrize("kind", ODD)
async def test_what_no_store_would_take_is_refused_at_the_call(kind: str) -> None:
    """The workflow sees a typed error where it made the mistake, and may go on."""
    async with app(tries, takes) as testing:
        run = await testing.start(tries(kind))
        refused = await run.result(timeout=PATIENCE)
    assert refused in {"PayloadTooLarge", "NotSerializable", "InvalidId"}


@outlast.workflow
async def maps_large_results() -> int:
    return sum(len(text) for text in await outlast.map(echoes, [HALF, HALF, HALF]))


async def test_large_results_of_a_map_that_come_together() -> None:
    """Each fits into a record, all of them do not: they are told in portions."""
    async with app(maps_large_results) as testing:
        run = await testing.start(maps_large_results())
        assert await run.result(timeout=PATIENCE) == 3 * len(HALF)
        payloads = [payload_of(event) for event in await testing.get(run.id).history()]
    told = [payload.completed for payload in payloads if isinstance(payload, MapProgress)]
    assert sorted(index for portion in told for index in portion) == [0, 1, 2]


paid = 0


@outlast.step
async def pays() -> None:
    global paid
    paid += 1


@outlast.workflow
async def writes_too_much() -> None:
    # The call itself is within the limit. What says that it was made is not.
    await asyncio.gather(pays(), _later(MAX_PAYLOAD_BYTES - 20))


async def _later(size: int) -> None:
    await pays()
    await echoes("x" * size)


async def test_a_commit_that_is_refused_for_ever_parks_its_run() -> None:
    """It is not tried again and again, with all that came before."""
    async with outlast.App("memory:", workflows=[writes_too_much], lease=0.5) as embedded:
        run = await embedded.start(writes_too_much())
        async with asyncio.timeout(PATIENCE):
            while (await run.status()).status is not Status.HALTED:
                await settle()
        record = await embedded.get(run.id).status()
        assert "the limit is 16,777,216" in (record.error or "")
    assert paid == 2


@pytest.mark.parametrize("attributes", [{"a": None}, {"a": [1]}, {7: "x"}, "x"])
async def test_attributes_that_nobody_could_read_again(attributes: Any) -> None:
    """A run with one would be damaged, and whoever lists runs would meet it."""
    async with app(takes) as testing:
        with pytest.raises(InvalidValue, match="attribute"):
            await testing.start(takes("a", "b"), attributes=attributes)
        assert [run async for run in testing.client.find()] == []


@pytest.mark.parametrize("reason", [None, 7, LONE])
async def test_a_reason_is_a_text(reason: Any) -> None:
    """It stands in the record of the run."""

    @outlast.workflow
    async def waits() -> None:
        await outlast.wait_for_signal("x")

    async with app(waits) as testing:
        run = await testing.start(waits())
        for end in (run.cancel, lambda reason: testing.get(run.id).terminate(reason)):
            with pytest.raises((InvalidValue, NotSerializable), match="reason"):
                await end(reason)
        await run.cancel("enough")
        with pytest.raises(RunFailed, match="enough"):
            await run.result(timeout=PATIENCE)
