"""Idempotency keys over the lives of a run: what a life has begun keeps its key in all later ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlast
from outlast.errors import RunFailed
from outlast.testing import RESIDENCIES, app
from outlast.testing import sleep as takes

life = 0
keys: list[str] = []


@pytest.fixture(autouse=True)
def _first_life() -> None:
    global life
    life = 1
    keys.clear()


@outlast.step(retry=outlast.Retry(attempts=5, delay=60, jitter=0, backoff=1))
async def mends_in_the_third_life() -> str:
    if life < 3:
        raise ValueError("not yet")
    return "mended"


@outlast.step(retry=outlast.Retry(attempts=1))
async def mends_in_the_second_life() -> str:
    await takes(100)
    if life < 2:
        raise ValueError("not yet")
    return "mended"


@outlast.step(retry=outlast.Retry(attempts=1))
async def pays() -> str:
    keys.append(outlast.step_info().idempotency_key)
    await takes(1000)
    if life < 3:
        raise ValueError("not yet")
    return "paid"


@outlast.workflow
async def trouble() -> list[Any]:
    async def payment() -> str:
        await mends_in_the_second_life()
        return await pays()

    return list(await asyncio.gather(mends_in_the_third_life(), payment()))


@pytest.mark.parametrize("residency", RESIDENCIES.values(), ids=RESIDENCIES)
async def test_a_step_keeps_its_key_in_a_run_that_is_retried_twice(residency: Any) -> None:
    """A retry leaves the failed attempts of a step out of the history: what was asked for after them
    still belongs to the life that has asked, and is paid under one key."""
    global life
    async with app(trouble, residency=residency) as testing:
        run = await testing.start(trouble(), id="it")
        uid = ""
        for _ in range(2):
            with pytest.raises(RunFailed, match="not yet"):
                await run.result()
            uid = (await testing.get("it").status()).uid
            life += 1
            await testing.get("it").retry()
        assert await run.result() == ["mended", "paid"]
    assert len(keys) == 2
    assert set(keys) == {f"{uid}/1/pays"}


@outlast.step(timeout=5)
async def pays_late() -> str:
    keys.append(outlast.step_info().idempotency_key)
    await takes(60 if life < 3 else 1)
    return "paid"


@outlast.step
async def is_shaky() -> None:
    await takes(1)
    if life < 3:
        raise ValueError("not yet")


@outlast.step
async def prepares() -> None:
    await takes(2)


@outlast.workflow
async def branches() -> str:
    async def payment() -> str:
        await prepares()
        return await pays_late()

    shaky, paid = await asyncio.gather(is_shaky(), payment(), return_exceptions=True)
    if shaky is not None:
        raise shaky
    return str(paid)


@pytest.mark.parametrize("residency", RESIDENCIES.values(), ids=RESIDENCIES)
async def test_a_step_that_was_asked_for_after_the_failure_keeps_its_key(residency: Any) -> None:
    """A branch went on when another had failed, and whether it has paid is not known: the same call of the
    retried run has the same key, in every life."""
    global life
    async with app(branches, residency=residency) as testing:
        run = await testing.start(branches(), id="it")
        for _ in range(2):
            with pytest.raises(RunFailed, match="not yet"):
                await run.result()
            life += 1
            await testing.get("it").retry()
        assert await run.result() == "paid"
    assert len(keys) == 3
    assert len(set(keys)) == 1
