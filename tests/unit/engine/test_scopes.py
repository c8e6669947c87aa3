"""Scopes and loops that end while something inside still runs: a replay runs them again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlast
from outlast.errors import ScopeFailed
from outlast.testing import crash_everywhere
from outlast.testing import sleep as takes

undone: set[str] = set()


@outlast.step(retry=outlast.Retry(attempts=1))
async def fails_fast() -> None:
    raise ValueError("full")


@outlast.step
async def reserves_slowly(name: str) -> str:
    await takes(60)
    return name


@reserves_slowly.compensate
async def releases(name: str) -> None:
    undone.add(name)


async def both() -> None:
    # When one of them has failed, gather lets the other run on.
    await asyncio.gather(fails_fast(), reserves_slowly("room"))


@outlast.workflow
async def outlives_its_scope() -> None:
    try:
        await outlast.scope(both)
    except ScopeFailed:
        await outlast.sleep(1200)
    raise ValueError("no")


@outlast.workflow
async def outlives_its_iteration() -> None:
    async def body(number: int) -> int | outlast.Stop[int]:
        if number == 3:
            return outlast.Stop(number)
        if number == 1:
            asyncio.ensure_future(reserves_slowly("seat"))  # noqa: RUF006
        await outlast.sleep(400)
        return number + 1

    await outlast.loop(body, 0)
    raise ValueError("no")


@outlast.workflow
async def outlives_a_scope_in_a_loop() -> None:
    async def body(number: int) -> int | outlast.Stop[int]:
        if number == 2:
            return outlast.Stop(number)
        try:
            await outlast.scope(both)
        except ScopeFailed:
            await outlast.sleep(400)
        return number + 1

    await outlast.loop(body, 0)
    await outlast.sleep(1000)
    raise ValueError("no")


@outlast.step
async def writes_slowly(name: str) -> None:
    await takes(60)
    undone.add(name)


@outlast.workflow
async def leaves_work_behind() -> None:
    async def begins() -> None:
        asyncio.ensure_future(writes_slowly("letter"))  # noqa: RUF006
        await outlast.sleep(5)

    await outlast.scope(begins)
    await outlast.sleep(1200)


@pytest.mark.parametrize(
    ("workflow", "names"),
    [
        (leaves_work_behind, {"letter"}),
        (outlives_its_scope, {"room"}),
        (outlives_its_iteration, {"seat"}),
        (outlives_a_scope_in_a_loop, {"room"}),
    ],
)
async def test_what_outlives_its_region_is_finished_and_undone(
    workflow: Any, names: set[str]
) -> None:
    """Wherever the process dies, a branch that runs on after the end of its scope or iteration is
    taken up again, and undone with the rest."""
    sweep = await crash_everywhere(
        workflow, setup=undone.clear, observe=lambda: sorted(undone), sample=15
    )
    assert sweep.ending.observed == sorted(names)
    assert sweep.unstable == set()
