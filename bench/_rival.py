"""Others' packages in environments of their own under .cache/, made as ./dev makes ours; DBOS first."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".cache" / "bench"
SCRIPT = Path(__file__).with_name("_dbos.py")
REQUIREMENTS = ["dbos==3.3.0"]
if sqlite3.sqlite_version_info < (3, 42):  # the least that DBOS works with
    REQUIREMENTS += ["pysqlite3-binary==0.5.4.post2"]


class Round(NamedTuple):
    """What one round of workflows took."""

    seconds: float
    latencies: list[float]
    settings: str


class Rival:
    """DBOS on a SQLite file: each round is a process and a file of its own, so that nothing of it
    runs while others are measured."""

    def __init__(self, folder: Path) -> None:
        self._python = environment("dbos", REQUIREMENTS)
        self._folder = folder
        self._rounds = 0

    def measure(self, mode: str, how: str, count: int) -> Round:
        """One round, see bench/_dbos.py."""
        self._rounds += 1
        file = self._folder / f"dbos-{self._rounds}.db"
        command = [str(self._python), str(SCRIPT), str(file), mode, how, str(count)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            command, stdout=subprocess.PIPE, cwd=self._folder, env=env, check=True, timeout=600
        )
        return Round(**json.loads(done.stdout.splitlines()[-1]))


def environment(name: str, requirements: list[str]) -> Path:
    """The Python of an environment with these packages, made now if need be. Its stamp is written
    last."""
    home = HOME / name
    python = home / "bin" / "python"
    stamp, wanted = home / "stamp", "\n".join([sys.version, *requirements])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    dev = _dev()
    # The Python that our own environment was made from: that one has a pip to ask.
    base = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    with dev.setting_up():
        dev.say(f"setting up {requirements[0]} in {home.relative_to(ROOT)} (once)")
        dev.remove(home)
        uv, env = dev.fetch_uv(base), dev.uv_environment(base)
        make = [uv, "venv", "--quiet", "--python", base, str(home)]
        dev.step("making it", make, env)
        install = [uv, "pip", "install", "--quiet", "--python", str(python), *requirements]
        dev.step(f"installing {requirements[0]}", install, env)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def _dev() -> ModuleType:
    """./dev as a module: it knows where packages come from here."""
    loader = importlib.machinery.SourceFileLoader("dev_script", str(ROOT / "dev"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
