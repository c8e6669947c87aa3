"""Two retries of one run at the same moment, and a retry whose answer was lost."""

from __future__ import annotations

from typing import Any

import pytest

import outlast
from outlast.client import handle as handles
from outlast.client.history_reset import retrial
from outlast.errors import Fenced, InvalidValue, RunFailed
from outlast.testing import VirtualApp, app

is_broken = False


@outlast.step(retry=outlast.Retry(attempts=1))
async def charge() -> None:
    if is_broken:
        raise ConnectionError("broken")


@outlast.workflow
async def order() -> str:
    await charge()
    return await outlast.wait_for_signal("word", str)


async def failed(opened: VirtualApp) -> Any:
    """A run that has failed, and would succeed now."""
    global is_broken
    is_broken = True
    run = await opened.start(order(), id="o")
    with pytest.raises(RunFailed):
        await run.result()
    is_broken = False
    return run


@pytest.mark.proves("I16", "I25")
async def test_the_second_of_two_retries_is_told_that_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has read a failed run, and finds another life: the answer is that of a retry a moment later."""
    async with app(order) as opened:
        run = await failed(opened)

        async def overtaken(*args: Any) -> Any:
            commit = await retrial(*args)
            monkeypatch.setattr(handles, "retrial", retrial)
            await opened.get("o").retry()
            await opened.clock.settle()
            return commit

        monkeypatch.setattr(handles, "retrial", overtaken)
        with pytest.raises(InvalidValue, match="only a failed run can be retried"):
            await run.retry()
        await run.signal("word", "done")
        assert await run.result() == "done"


@pytest.mark.proves("I16", "I25")
async def test_a_retry_whose_answer_was_lost_has_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its life has continued when it is sent again, and is fenced: that life is its own."""
    async with app(order) as opened:
        run = await failed(opened)
        write = run._backend.write

        async def loses_the_answer(commit: Any, **options: Any) -> Any:
            await write(commit, **options)
            await opened.clock.settle()
            raise Fenced("run 'o'", token=None, current=3)

        monkeypatch.setattr(run._backend, "write", loses_the_answer)
        assert await run.retry() is run
        monkeypatch.undo()
        await run.signal("word", "done")
        assert await run.result() == "done"
