"""What is wrong is said where it is written, and never leaves a worker stuck."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.cli.main import Exit
from outlast.errors import InvalidId, InvalidValue, NotFound
from outlast.stores.memory import MemoryStore
from tests.unit.cli.stage import piped


@outlast.workflow
async def nothing() -> str:
    return "done"


@pytest.mark.parametrize(
    ("app", "said"),
    [("nowhere:app", "no module 'nowhere'"), ("json:app", "'app'"), ("json:__name__", "App")],
)
def test_a_worker_of_nothing_says_so(tmp_path: Path, app: str, said: str) -> None:
    """A module that is not there, one without such an app, and something that is no app."""
    done = piped(tmp_path, "worker", app)
    assert done.returncode == Exit.USAGE
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.proves("I32")
async def test_a_run_of_an_unknown_workflow_holds_nobody_up() -> None:
    """Asked for by a name that nobody has, it is refused; begun where its code was, it waits for
    whoever has it, and others pass."""
    store = MemoryStore()

    @outlast.workflow
    async def gone() -> None:
        return None

    async with outlast.App(store) as other:
        left = await other.start(gone(), here=False)
    async with outlast.App(store, workflows=[nothing]) as worker:
        with pytest.raises(NotFound, match="nope"):
            await worker.start("nope")
        assert await (await worker.start(nothing(), here=False)).result(timeout=60) == "done"
        assert (await worker.get(left.id).status()).status == "pending"


@pytest.mark.parametrize("name", ["ü b c", "a\"b'c", "{x}:y~z", "a.fifo", "😀", "..", "%s;--"])
async def test_a_queue_may_have_an_odd_name(name: str) -> None:
    """Printable is enough: a name is data to every store, and never part of a path or a query."""

    @outlast.step(queue=name)
    async def work() -> str:
        return name

    @outlast.workflow
    async def flow() -> str:
        return await work()

    async with outlast.App(MemoryStore(), workflows=[flow], steps=[work]) as app:
        assert await (await app.start(flow())).result(timeout=60) == name


@pytest.mark.parametrize("name", ["", "a\nb", "\x00", "x" * 1025, "a/b", 5])
def test_a_queue_without_a_proper_name_is_refused(name: Any) -> None:
    """Where the step is declared."""
    with pytest.raises((InvalidId, InvalidValue), match="queue name"):

        @outlast.step(queue=name)
        async def work() -> None:
            return None


@pytest.mark.parametrize("lease", [0, -1, math.nan, math.inf, 86_401])
def test_a_lease_that_is_none_is_refused(lease: float) -> None:
    """Before anything is opened: a worker with it could claim nothing, for ever."""
    with pytest.raises(InvalidValue, match="lease"):
        outlast.App(MemoryStore(), lease=lease)


async def test_limits_that_are_none_are_refused() -> None:
    """Negative and zero, for runs and for tasks."""
    store = MemoryStore()
    for limit in (0, -1):
        with pytest.raises(InvalidValue, match="limit"):
            await store.claim_runs("w", ttl=1, limit=limit)
        with pytest.raises(InvalidValue, match="limit"):
            await store.find_available_tasks(limit=limit)
    with pytest.raises(InvalidValue, match="lease"):
        await store.queue().take("q", owner="w", visibility=-1)
