"""Maps: one step over many items, one record for all of them."""

from __future__ import annotations

import outlast
from outlast import sync
from outlast.errors import MapFailed, StepFailed
from tests.corpus.case import Case
from tests.corpus.stage import notes, takes


@outlast.step
async def square(number: int) -> int:
    await takes(10 - number)
    return number * number


@outlast.step(name="square")
def square_in_thread(number: int) -> int:
    return number * number


@sync.step(name="square")
def square_plainly(number: int) -> int:
    return number * number


@outlast.step
async def odd_only(number: int) -> int:
    await takes(number)
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number


@outlast.step(retry=outlast.Retry(attempts=5, delay=60))
async def flaky(number: int) -> int:
    notes().append(number)
    if notes().count(number) < 3:
        raise ConnectionError("again")
    return number


@outlast.workflow
async def maps() -> list[int]:
    return await outlast.map(square, range(5), concurrency=3)


@outlast.workflow
def maps_sync() -> list[int]:
    return sync.map(square_plainly, range(5), concurrency=3)


@outlast.workflow
async def maps_nothing() -> list[str]:
    before = outlast.now()
    squares = await outlast.map(square, [])
    return [f"{squares} in {outlast.now() - before}"]


@outlast.workflow
async def a_map_fails() -> str:
    try:
        await outlast.map(odd_only, [1, 3, 4, 5, 7], concurrency=1)
    except MapFailed as failure:
        return f"{failure.index}: {failure.error}"
    return "never"


@outlast.workflow
async def tolerates_two() -> list[str]:
    results: list[object] = [*await outlast.map(odd_only, [1, 2, 3, 4, 5], tolerate=2)]
    return [type(r).__name__ if isinstance(r, StepFailed) else str(r) for r in results]


@outlast.workflow
async def three_are_enough() -> int:
    results: list[object] = [*await outlast.map(square, range(9), concurrency=9, enough=3)]
    return sum(result is not None for result in results)


@outlast.workflow
async def none_are_enough() -> list[int | None]:
    return [*await outlast.map(square, range(9), enough=0)]


@outlast.workflow
async def maps_stubbornly() -> list[int]:
    return await outlast.map(flaky, [1, 2])


@outlast.workflow
async def maps_thousands() -> int:
    results = await outlast.map(square_in_thread, range(2_000), concurrency=100)
    await outlast.sleep(hours=1)
    return sum(results) if results == sorted(results) else -1


CASES = [
    Case(
        maps,
        """
        workflow.started
        map.started map:square
        map.progress map:square
        map.completed map:square
        workflow.completed
        """,
        [0, 1, 4, 9, 16],
    ),
    Case(
        maps_sync,
        """
        workflow.started
        map.started map:square
        map.progress map:square
        map.completed map:square
        workflow.completed
        """,
        [0, 1, 4, 9, 16],
    ),
    Case(
        maps_nothing,
        """
        workflow.started
        map.started map:square
        map.completed map:square
        workflow.completed
        """,
        ["[] in 0:00:00"],
        after_crash=(["[] in 0:00:30"],),
    ),
    Case(
        a_map_fails,
        """
        workflow.started
        map.started map:odd_only
        map.progress map:odd_only
        map.failed map:odd_only
        workflow.completed
        """,
        "2: ValueError: 4 is even",
        bodies=3,
    ),
    Case(
        tolerates_two,
        """
        workflow.started
        map.started map:odd_only
        map.progress map:odd_only
        map.completed map:odd_only
        workflow.completed
        """,
        ["1", "StepFailed", "3", "StepFailed", "5"],
    ),
    Case(
        three_are_enough,
        """
        workflow.started
        map.started map:square
        map.progress map:square
        map.completed map:square
        workflow.completed
        """,
        3,
        bodies=9,
    ),
    Case(
        none_are_enough,
        """
        workflow.started
        map.started map:square
        map.completed map:square
        workflow.completed
        """,
        [None] * 9,
    ),
    Case(
        maps_stubbornly,
        """
        workflow.started
        map.started map:flaky
        map.progress map:flaky
        map.completed map:flaky
        workflow.completed
        """,
        [1, 2],
        bodies=6,
    ),
    Case(
        maps_thousands,
        """
        workflow.started
        map.started map:square
        map.progress map:square
        map.completed map:square
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        sum(n * n for n in range(2_000)),
    ),
]
