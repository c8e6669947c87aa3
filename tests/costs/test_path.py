"""How many files of the package one step crosses, from `await step(x)` until it is durable and delivered.

Counted from the first line of one step function to the first line of the next: the outcome is delivered, the
workflow code runs, the next step is requested, its intent is committed, and its function is called.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import outlast
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore

PACKAGE = str(Path(outlast.__file__).parent)
MAX_FILES = {"memory": 26, "sqlite": 36}
crossed: set[str] = set()
is_counting = False


def _note(frame: FrameType, event: str, _: object) -> None:
    if is_counting and event == "call":
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE):
            crossed.add(path[len(PACKAGE) + 1 :])


@contextmanager
def _profiled() -> Iterator[None]:
    threading.setprofile(_note)
    sys.setprofile(_note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@outlast.step
async def increase(number: int) -> int:
    """Count from the second call to the third: by then nothing is imported or compiled any more."""
    global is_counting
    is_counting = number == 2
    return number + 1


@outlast.workflow
async def three_steps(number: int) -> int:
    """Three steps in a row."""
    for _ in range(3):
        number = await increase(number)
    return number


@pytest.mark.parametrize("kind", MAX_FILES)
async def test_a_step_crosses_few_files(kind: str, tmp_path: Path) -> None:
    """The number is a limit: a change that needs more files for a step has to say why."""
    crossed.clear()
    with _profiled():
        store: Store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "path.db")
        async with store, outlast.App(store, workflows=[three_steps]) as app:
            run = await app.start(three_steps(1))
            assert await run.result() == 4
    assert len(crossed) <= MAX_FILES[kind], "\n".join(sorted(crossed))
