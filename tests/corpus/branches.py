"""Branches: plain asyncio in workflow code, where steps of different speed run side by side."""

from __future__ import annotations

import asyncio

import outlast
from outlast.errors import StepFailed
from tests.corpus.case import Case
from tests.corpus.stage import takes


@outlast.step
async def work(name: str, seconds: float) -> str:
    await takes(seconds)
    return name


@outlast.step
async def refuse(seconds: float) -> None:
    await takes(seconds)
    raise ValueError("no")


@outlast.step
async def keep(names: list[str]) -> list[str]:
    return names


async def heard_the_same(heard: list[str]) -> bool:
    """Whether a list is the same when it is filled by a replay as when it was filled live."""
    kept: list[str] = await keep(heard)
    await outlast.sleep(hours=1)
    return heard == kept


@outlast.workflow
async def gathers() -> list[str]:
    return list(await asyncio.gather(work("slow", 9), work("quick", 1), work("medium", 5)))


@outlast.workflow
async def appends_to_one_list() -> bool:
    heard: list[str] = []

    async def branch(name: str, seconds: float) -> None:
        for number in range(2):
            line = await work(f"{name}{number}", seconds)
            heard.append(line)

    await asyncio.gather(branch("a", 3), branch("b", 2))
    return await heard_the_same(heard)


@outlast.workflow
async def takes_them_as_they_come() -> bool:
    tasks = [asyncio.create_task(work(name, pause)) for name, pause in (("late", 8), ("early", 2))]
    return await heard_the_same([await next_one for next_one in asyncio.as_completed(tasks)])


@outlast.workflow
async def takes_the_first() -> str:
    tasks = [
        asyncio.create_task(work(name, pause)) for name, pause in (("slow", 600), ("quick", 2))
    ]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    (winner,) = done
    return winner.result()


@outlast.workflow
async def fifty_branches() -> int:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(str(n), 1 + (n * 7) % 50)) for n in range(50)]
    return sum(int(task.result()) for task in tasks)


FIFTY_BRANCHES = "\n".join(
    [
        "workflow.started",
        *(f"step.started {n}/work" for n in range(50)),
        *(f"step.completed {n}/work" for n in sorted(range(50), key=lambda n: n * 7 % 50)),
        "workflow.completed",
    ]
)


@outlast.workflow
async def stops_waiting() -> str:
    try:
        async with asyncio.timeout(100):
            await work("endless", 600)
    except TimeoutError:
        return await work("instead", 1)
    return "never"


@outlast.workflow
async def is_quick_enough() -> str:
    async with asyncio.timeout(100):
        name = await work("quick", 1)
    await outlast.sleep(hours=2)
    return name


@outlast.workflow
async def one_failure_stops_the_group() -> list[str]:
    errors: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(work("endless", 600))
            group.create_task(refuse(5))
    except* StepFailed as failures:
        errors = [str(error.step) for error in failures.exceptions if isinstance(error, StepFailed)]
    return errors


@outlast.workflow
async def gathers_failures() -> list[str]:
    results = await asyncio.gather(refuse(2), work("fine", 1), return_exceptions=True)
    return [result if isinstance(result, str) else type(result).__name__ for result in results]


@outlast.workflow
async def goes_on_beside() -> list[str]:
    aside = asyncio.create_task(work("aside", 30))
    first = await work("first", 1)
    second = await work("second", 1)
    return [first, second, await aside]


@outlast.workflow
async def branches_in_branches() -> list[list[str]]:
    async def pair(name: str) -> list[str]:
        return list(await asyncio.gather(work(name + "1", 4), work(name + "2", 2)))

    return list(await asyncio.gather(pair("a"), pair("b")))


@outlast.workflow
async def hands_over_by_queue() -> list[str]:
    """Locks, events and queues of asyncio need no world: they work as they are."""
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def produce() -> None:
        for name in ("one", "two"):
            await queue.put(await work(name, 3))

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        return [await queue.get(), await queue.get()]


CASES = [
    Case(
        gathers,
        """
        workflow.started
        step.started 0/work
        step.started 1/work
        step.started 2/work
        step.completed 1/work
        step.completed 2/work
        step.completed 0/work
        workflow.completed
        """,
        ["slow", "quick", "medium"],
        parallel=True,
    ),
    Case(
        appends_to_one_list,
        """
        workflow.started
        step.started 0/work
        step.started 1/work
        step.completed 1/work
        step.started 1/work#2
        step.completed 0/work
        step.started 0/work#2
        step.completed 1/work#2
        step.completed 0/work#2
        step.started keep
        step.completed keep
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        True,
        parallel=True,
    ),
    Case(
        takes_them_as_they_come,
        """
        workflow.started
        step.started 0/work
        step.started 1/work
        step.completed 1/work
        step.completed 0/work
        step.started keep
        step.completed keep
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        True,
        parallel=True,
    ),
    Case(
        takes_the_first,
        """
        workflow.started
        step.started 0/work
        step.started 1/work
        step.completed 1/work
        operation.abandoned 0/work
        workflow.completed
        """,
        "quick",
        bodies=2,
    ),
    Case(fifty_branches, FIFTY_BRANCHES, sum(range(50)), parallel=True),
    Case(
        stops_waiting,
        """
        workflow.started
        timer.started timer
        step.started work
        timer.fired timer
        operation.abandoned work
        step.started work#2
        step.completed work#2
        workflow.completed
        """,
        "instead",
        bodies=2,
    ),
    Case(
        is_quick_enough,
        """
        workflow.started
        timer.started timer
        step.started work
        step.completed work
        operation.abandoned timer
        timer.started timer#2
        timer.fired timer#2
        workflow.completed
        """,
        "quick",
    ),
    Case(
        one_failure_stops_the_group,
        """
        workflow.started
        step.started 0/work
        step.started 1/refuse
        step.failed 1/refuse
        operation.abandoned 0/work
        workflow.completed
        """,
        ["1/refuse"],
        bodies=2,
    ),
    Case(
        gathers_failures,
        """
        workflow.started
        step.started 0/refuse
        step.started 1/work
        step.completed 1/work
        step.failed 0/refuse
        workflow.completed
        """,
        ["StepFailed", "fine"],
        bodies=2,
        parallel=True,
    ),
    Case(
        goes_on_beside,
        """
        workflow.started
        step.started work
        step.started 0/work
        step.completed work
        step.started work#2
        step.completed work#2
        step.completed 0/work
        workflow.completed
        """,
        ["first", "second", "aside"],
        parallel=True,
    ),
    Case(
        branches_in_branches,
        """
        workflow.started
        step.started 0/0/work
        step.started 0/1/work
        step.started 1/0/work
        step.started 1/1/work
        step.completed 0/1/work
        step.completed 1/1/work
        step.completed 0/0/work
        step.completed 1/0/work
        workflow.completed
        """,
        [["a1", "a2"], ["b1", "b2"]],
        parallel=True,
    ),
    Case(
        hands_over_by_queue,
        """
        workflow.started
        step.started 0/work
        step.completed 0/work
        step.started 0/work#2
        step.completed 0/work#2
        workflow.completed
        """,
        ["one", "two"],
    ),
]
