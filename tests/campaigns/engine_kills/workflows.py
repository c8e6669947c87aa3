"""Workflows of every kind, small enough that many are under way when their process is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import outlast
from outlast import sync
from outlast.decorators import Workflow
from outlast.engine.definitions.retry import MAX_INTERRUPTIONS
from outlast.model import Status
from tests.campaigns.engine_kills.ledgers import effect

SIGNALS = 5
ITEMS = 12
ROUNDS = 6
LIVES = 3
BOOKED = ["hotel", "flight", "car"]
RETRY = outlast.Retry(attempts=4, delay=0.01)


@outlast.step
async def add(left: int, right: int) -> int:
    with effect():
        await asyncio.sleep(0.005)  # work
        return left + right


@sync.step
def plus(left: int, right: int) -> int:
    with effect():
        return left + right


@outlast.step(retry=RETRY)
async def stumble(number: int) -> int:
    with effect():
        if outlast.step_info().attempt < 3:
            raise ConnectionError("not yet")
        return 2 * number


@outlast.step
async def linger(number: int) -> int:
    with effect():
        if outlast.step_info().attempt == 1:
            await asyncio.sleep(0.3)  # work that is likely to be cut off
        return number


@outlast.step
async def square(number: int) -> int:
    with effect():
        await asyncio.sleep(0.003)  # work
        return number * number


@outlast.step
async def book(what: str) -> str:
    with effect(what):
        return what


@book.compensate
async def unbook(what: str) -> None:
    with effect(f"un-{what}"):
        await asyncio.sleep(0.01)  # work


@outlast.workflow
async def chain(number: int) -> int:
    for one in range(5):
        number = await add(number, one)
    return number


@outlast.workflow
async def lingers(number: int) -> int:
    return await linger(number) + await linger(number)


@outlast.workflow
async def flaky(number: int) -> int:
    return await stumble(number)


@outlast.workflow
async def spread(number: int) -> list[int]:
    return await outlast.map(square, range(number, number + ITEMS), concurrency=4)


@outlast.workflow
async def naps(number: int) -> int:
    await outlast.sleep(0.05)
    number = await add(number, 1)
    await outlast.sleep_until(outlast.now() + timedelta(seconds=0.05))
    return await add(number, 1)


@outlast.workflow
async def listens(number: int) -> list[int]:
    words = []
    for _ in range(SIGNALS):
        words.append(await outlast.wait_for_signal("word", int))
        await add(number, 0)
    return words


@outlast.workflow
async def parent(number: int) -> int:
    return await add(await chain(number), 1)


@outlast.workflow
async def undoes(number: int) -> None:
    for what in BOOKED:
        await book(what)
    raise ValueError(f"no trip {number}")


async def another_round(state: list[int]) -> list[int] | outlast.Stop[int]:
    number, left = state
    if not left:
        return outlast.Stop(number)
    return [await add(number, 1), left - 1]


@outlast.workflow
async def loops(number: int) -> int:
    return await outlast.loop(another_round, [number, ROUNDS])


@outlast.workflow
async def fans(number: int) -> int:
    return sum(await asyncio.gather(*(add(number, one) for one in range(4))))


@outlast.workflow
async def renews(number: int, lives: int = LIVES) -> int:
    number = await add(number, 1)
    if lives > 1:
        outlast.continue_as_new(renews(number, lives - 1))
    return number


@sync.workflow
def plain(number: int) -> int:
    for one in range(4):
        number = plus(number, one)
        sync.sleep(0.01)
    return number


class Kind(NamedTuple):
    """A workflow, and what becomes of number n: a value, or an error. It may also be given up, after
    so many processes have died in one of its steps."""

    workflow: Workflow[..., Any]
    expected: Callable[[int], object]
    ends: Status = Status.COMPLETED
    deaths: int = MAX_INTERRUPTIONS


KINDS: dict[str, Kind] = {
    "chain": Kind(chain, lambda n: n + 10),
    "lingers": Kind(lingers, lambda n: 2 * n),
    "flaky": Kind(flaky, lambda n: 2 * n),
    "spread": Kind(spread, lambda n: [one * one for one in range(n, n + ITEMS)]),
    "naps": Kind(naps, lambda n: n + 2),
    "listens": Kind(listens, lambda n: list(range(SIGNALS))),
    "parent": Kind(parent, lambda n: n + 11),
    "undoes": Kind(undoes, lambda n: f"no trip {n}", ends=Status.FAILED),
    "loops": Kind(loops, lambda n: n + ROUNDS),
    "fans": Kind(fans, lambda n: 4 * n + 6),
    "renews": Kind(renews, lambda n: n + LIVES),
    "plain": Kind(plain, lambda n: n + 6),
}


def id_of(number: int, kinds: Mapping[str, Kind] = KINDS) -> str:
    """The id of the n-th run: each kind in turn."""
    return f"{list(kinds)[number % len(kinds)]}-{number}"


def kind_of(run_id: str, kinds: Mapping[str, Kind] = KINDS) -> tuple[Kind, int]:
    """The kind and the number of a run."""
    name, _, number = run_id.partition("-")
    return kinds[name], int(number)
