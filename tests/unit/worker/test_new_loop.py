"""The loop of a process that is there for outlast alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import outlast.sync
from outlast.worker.background_loop import new_loop

APP = """
import asyncio, sys
import outlast

@outlast.workflow
async def nothing() -> None: ...

class Telling(outlast.App):
    async def open(self) -> None:
        print(type(asyncio.get_running_loop()).__module__, file=sys.stderr)
        await super().open()

app = Telling("sqlite:///runs.db", workflows=[nothing])
"""


@outlast.sync.step
def some_step() -> int:
    """Nothing."""
    return 1


@outlast.sync.workflow
def some_workflow() -> int:
    """One step."""
    return some_step()


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop is not for Windows")
def test_it_is_the_fastest_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop's where it is installed, asyncio's elsewhere."""
    loop = new_loop()
    loop.close()
    assert type(loop).__module__ == "uvloop"
    monkeypatch.setitem(sys.modules, "uvloop", None)
    plain = new_loop()
    plain.close()
    assert isinstance(plain, asyncio.SelectorEventLoop)


def test_an_app_of_plain_code_needs_no_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lives on asyncio's loop as well."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with outlast.sync.App("memory://", workflows=[some_workflow]) as app:
        assert app.start(some_workflow()).result() == 1


def test_a_worker_lives_on_it(tmp_path: Path) -> None:
    """What `outlast worker` runs, runs there, and is stopped by SIGTERM as ever."""
    (tmp_path / "tells.py").write_text(APP, encoding="utf-8")
    worker = subprocess.Popen(
        [sys.executable, "-m", "outlast", "worker", "tells:app"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stderr is not None
    told = [worker.stderr.readline() for _ in range(2)]
    worker.terminate()
    worker.communicate(timeout=60)
    assert told[0] == "uvloop\n"
    assert "running nothing" in told[1]
    assert worker.returncode == 0
