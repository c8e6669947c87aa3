"""The loop of a process that is there for outlast alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import outlast.sync
from outlast.worker.loops import new_loop

APP = """
import asyncio
import outlast

@outlast.step
async def kind_of_loop() -> str:
    return type(asyncio.get_running_loop()).__module__

@outlast.workflow
async def tells() -> str:
    return await kind_of_loop()

app = outlast.App("sqlite:///runs.db", workflows=[tells])
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
        assert app.start(some_workflow).result() == 1


def test_a_worker_lives_on_it(tmp_path: Path) -> None:
    """What `outlast worker` runs, runs there; a single command need not wait for it to be loaded."""
    (tmp_path / "tells.py").write_text(APP, encoding="utf-8")
    outlast_ = [sys.executable, "-m", "outlast.cli"]
    here = {**os.environ, "OUTLAST_STORE": "sqlite:///runs.db"}
    worker = subprocess.Popen(
        [*outlast_, "worker", "tells:app"], cwd=tmp_path, env=here, stderr=subprocess.PIPE
    )
    try:
        assert worker.stderr is not None
        worker.stderr.readline()
        done = subprocess.run(
            [*outlast_, "start", "tells", "--app", "tells:app", "--wait", "--json"],
            cwd=tmp_path, env=here, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    finally:
        worker.terminate()
        worker.communicate(timeout=30)
    assert '"result":"uvloop"' in done.stdout
