"""Runs that come back while somebody asks for them: what is refused by the record that was left where a
run has been is not refused by the run, and nobody is told that a run has ended which has not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import Moved, RunCancelled
from outlast.model import EventType, Status
from outlast.ports.store import Store
from outlast.query import parse
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.transfer import move_runs
from tests.unit.transfer.test_disturbed import Disturbed

Before = Callable[[str, tuple[Any, ...]], bool]
CHILD = "r~child.leaf"


@outlast.workflow
async def leaf() -> str:
    return await outlast.wait_for_signal("fall", type=str)


@outlast.workflow
async def tree() -> str:
    @outlast.on_update
    def ask(question: int) -> int:
        return question + 1

    return await leaf()


WORKFLOWS: list[outlast.Workflow[..., Any]] = [tree, leaf]


class Away:
    """A run and its child, started at `here` and moved `there`, and how they come back."""

    def __init__(self, here: Store, there: Store, stack: AsyncExitStack) -> None:
        self.here = here
        self._there = there
        self._stack = stack

    async def go(self) -> None:
        """To the other store."""
        moves = await move_runs(self.here, self._there, parse(""), address="there")
        assert (moves.runs, moves.refused) == (2, {})

    async def come(self) -> None:
        """Back again, where there is a worker for them now."""
        moves = await move_runs(self._there, self.here, parse(""), address="here")
        assert (moves.runs, moves.refused) == (2, {})
        await self._stack.enter_async_context(outlast.App(self.here, workflows=WORKFLOWS))

    def comes(self, before: Before) -> outlast.App:
        """A client who is overtaken by the run, once, before a call."""
        return outlast.App(Disturbed(self.here, before, self.come), workflows=WORKFLOWS)


def after(first: str, then: str) -> Before:
    """Before the first call of `then` that comes after one of `first`."""
    calls: list[str] = []

    def is_it(name: str, _: tuple[Any, ...]) -> bool:
        calls.append(name)
        return name == then and first in calls[:-1]

    return is_it


@pytest.fixture(params=["memory", "sqlite"])
async def away(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Away]:
    """Runs that were moved, from stores of both kinds."""
    here = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "here.db")
    async with here, MemoryStore() as there, AsyncExitStack() as stack:
        async with outlast.App(here, workflows=WORKFLOWS) as app:
            await app.start(tree(), id="r")
            await app.get(CHILD).signal("never", "asked for")  # there is a child
        moved = Away(here, there, stack)
        await moved.go()
        yield moved


@pytest.mark.proves("I3", "I7")
async def test_a_signal_reaches_a_run_that_comes_back_as_it_is_sent(away: Away) -> None:
    """Refused by what was left of the run, it is sent again when the run is there: told that the run
    has ended, its sender would never send it again, and the run wait for ever."""
    app = away.comes(after("send", "find_one"))
    await app.get(CHILD).signal("fall", "heard")
    assert await app.get("r").result(timeout=30) == "heard"


async def test_an_update_reaches_a_run_that_comes_back_as_it_is_sent(away: Away) -> None:
    """It is answered; taken for one that came too late, it would be waited for without an end."""
    app = away.comes(after("send", "find_one"))
    with pytest.raises(Moved):
        await app.get("r").update("ask", 1, timeout=30)
    await away.come()
    gone = Disturbed(away.here, after("find_one", "send"), away.go)
    app = outlast.App(Disturbed(gone, after("send", "find_one"), away.come), workflows=WORKFLOWS)
    assert await app.get("r").update("ask", 1, timeout=30) == 2


async def test_a_run_that_comes_back_is_cancelled(away: Away) -> None:
    """Who cancels it is not told that it has ended."""
    app = away.comes(after("send", "find_one"))
    await app.get("r").cancel("no more")
    with pytest.raises(RunCancelled, match="no more"):
        await app.get("r").result(timeout=30)


async def test_a_run_that_goes_and_comes_back_is_terminated(away: Away) -> None:
    """Who has looked at it before it went ends it when it is there again."""
    await away.come()
    gone = Disturbed(away.here, after("find_one", "commit"), away.go)
    app = outlast.App(Disturbed(gone, after("commit", "find_one"), away.come), workflows=WORKFLOWS)
    await app.get("r").terminate("enough")
    run = await away.here.get("r")
    assert (run.status, run.error, run.moved_to) == (Status.CANCELLED, "enough", None)


async def test_what_was_left_of_a_run_is_not_shown_as_the_run(away: Away) -> None:
    """Whoever looks as it comes is told where it was, or sees the run."""
    looks: list[str] = []

    def second(name: str, args: tuple[Any, ...]) -> bool:
        looks.append(name)
        return looks.count("find_one") == 2

    app = away.comes(second)
    with pytest.raises(Moved, match="there"):
        await app.get("r").status()
    assert not (await app.get("r").status()).status.terminal


async def test_a_child_that_comes_back_with_its_tree_is_found(away: Away) -> None:
    """Nothing is left of a child where it was, and its root does not say that it is unknown."""
    app = away.comes(after("find_one", "find_one"))
    assert not (await app.get(CHILD).status()).status.terminal


async def test_a_history_that_comes_back_is_read_whole(away: Away) -> None:
    """The seal is no part of it."""
    app = away.comes(after("history", "find_one"))
    history = await app.get("r").history()
    assert history[0].type == EventType.WORKFLOW_STARTED
    assert EventType.WORKFLOW_MOVED not in {event.type for event in history}
