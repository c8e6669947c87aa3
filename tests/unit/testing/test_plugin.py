"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]

USER_TEST = """
import outlast

@outlast.workflow
async def nap() -> str:
    await outlast.sleep(days=30)
    return "awake"

async def test_nap(outlast_app, virtual_clock):
    began = virtual_clock.now()
    async with outlast_app(nap) as app:
        run = await app.start(nap())
        assert await run.result() == "awake"
    assert (virtual_clock.now() - began).days == 30

async def test_two_apps_on_one_store(outlast_app, tmp_path):
    url = f"sqlite:///{tmp_path}/shared.db"
    async with outlast_app(nap, store=url) as app:
        await app.start(nap(), id="one")
    async with outlast_app(nap, store=url) as app:
        assert await app.get("one").result() == "awake"
"""


def test_a_users_tests_get_the_fixtures(tmp_path: Path) -> None:
    """With the plugin loaded, a test asks for an app and a clock by name."""
    (tmp_path / "test_user.py").write_text(USER_TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "outlast.testing.plugin"]
    options = ["-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    options += ["-o", "asyncio_default_fixture_loop_scope=function"]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, *options, "-W", "error", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_plugin_comes_with_the_package() -> None:
    """pytest finds the plugin by itself wherever outlast is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"outlast": "outlast.testing.plugin"}
