"""Others' packages, in environments of their own under .cache/, made as ./dev makes ours; and their
programs (bench/peers/), each round in a process of its own, so that nothing of them runs while others
are measured. Whoever cannot be installed or fails is told by name, with the reason: `PeerMissing`.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "bench"
PATIENCE = 300.0
READY = b"ready\n"

PEERS = {  # what each is installed from
    "dbos": ["dbos==3.3.0"],
    "restate": ["restate-sdk==1.2.0", "hypercorn==0.18.0"],
    "absurd": ["absurd-sdk==0.5.1", "absurdctl==0.5.1"],
    "langgraph": [
        "langgraph==1.2.20",
        "langgraph-checkpoint-sqlite==3.1.2",
        "langgraph-checkpoint-postgres==3.2.0",
        "psycopg[binary,pool]==3.3.8",
    ],
    "sayiir": ["sayiir==1.0.0"],
    "eventsourcing": ["eventsourcing[postgres]==9.5.6"],
    "celery": ["celery[redis]==5.7.0"],
    "dramatiq": ["dramatiq[redis]==2.2.1"],
    "huey": ["huey[redis]==3.5.4"],
    "procrastinate": ["procrastinate==3.10.0", "psycopg[binary,pool]"],
}
if sqlite3.sqlite_version_info < (3, 42):  # the least that DBOS works with
    PEERS["dbos"].append("pysqlite3-binary==0.5.4.post2")
RESTATE_SERVER = "@restatedev/restate-server@1.7.12"


class PeerMissing(Exception):
    """Somebody cannot take part; the text says why."""


def told(
    programs: Sequence[Sequence[str]], folder: Path, *, patience: float = PATIENCE
) -> list[dict[str, Any]]:
    """What programs find, each in a process: they say `ready`, get the word to go together when all
    are, and print one JSON object at last. Whoever has not ended after `patience` seconds is killed."""
    with tempfile.TemporaryFile(dir=folder) as errors, ExitStack() as stack:
        try:
            processes = [_started(program, errors, stack) for program in programs]
            timer = threading.Timer(patience, _kill, [processes])
            timer.start()
            stack.callback(timer.cancel)
            for process in processes:
                _wait_for_ready(process)
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(b"go\n")
                process.stdin.flush()
            return [_found(process) for process in processes]
        except (OSError, PeerMissing, ValueError, IndexError) as error:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            raise PeerMissing(f"{error}: {said[-1] if said else 'it said nothing'}") from error


def _started(
    program: Sequence[str], errors: IO[bytes], stack: ExitStack
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        program,
        cwd=ROOT,
        env=environment_for(program[0]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
    )
    stack.enter_context(process)
    stack.callback(process.kill)  # before it is waited for; no matter if it has ended
    return process


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()


def _wait_for_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line == READY:
            return
    raise PeerMissing(f"{_ending(process)} before it was ready")


def _found(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    output, _ = process.communicate()
    if process.returncode != 0:
        raise PeerMissing(_ending(process))
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def _ending(process: subprocess.Popen[bytes]) -> str:
    status = process.wait()
    return "took too long and was killed" if status == -signal.SIGKILL else f"ended with {status}"


def ours(module: str, *args: str) -> list[str]:
    """The command of a program of ours."""
    return [sys.executable, "-m", module, *args]


def theirs(peer: str, module: str, *args: str) -> list[str]:
    """The command of a program in bench/peers/, run by the peer's own Python."""
    return [str(environment(peer, PEERS[peer])), "-m", f"bench.peers.{module}", *args]


def environment_for(python: str) -> dict[str, str]:
    """The variables for a program: nothing that points another Python to our packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    path = f"{ROOT / 'src'}:{ROOT}" if python == sys.executable else str(ROOT)
    return {**kept, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache")}


# -- installing -----------------------------------------------------------------------------------


def install(peer: str) -> None:
    """All that a peer needs, before anything is measured."""
    environment(peer, PEERS[peer])
    if peer == "restate":
        restate_server()


def environment(name: str, requirements: list[str]) -> Path:
    """The Python of an environment with these packages, made now if need be. Its stamp is written
    last."""
    home = CACHE / name
    python = home / "bin" / "python"
    wanted = "\n".join([sys.version, *requirements])
    if _is_ready(home, wanted):
        return python
    dev = _dev()
    # The Python that our own environment was made from: that one has a pip to ask.
    base = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    with dev.setting_up():
        dev.say(f"setting up {requirements[0]} in {home.relative_to(ROOT)} (once)")
        dev.remove(home)
        try:
            uv, env = dev.fetch_uv(base), dev.uv_environment(base)
            make = [uv, "venv", "--quiet", "--python", base, str(home)]
            dev.step("making it", make, env)
            install = [uv, "pip", "install", "--quiet", "--python", str(python), *requirements]
            dev.step(f"installing {requirements[0]}", install, env)
        except dev.Failure as failure:
            raise PeerMissing(str(failure)) from failure
        (home / "stamp").write_text(wanted, encoding="utf-8")
    return python


def restate_server() -> Path:
    """The program of Restate's server, from npm."""
    home = CACHE / "restate-server"
    if not _is_ready(home, RESTATE_SERVER):
        dev, npm = _dev(), shutil.which("npm")
        if npm is None:
            raise PeerMissing("Restate's server comes from npm, which is not installed")
        with dev.setting_up():
            dev.say(f"setting up {RESTATE_SERVER} in {home.relative_to(ROOT)} (once)")
            dev.remove(home)
            home.mkdir(parents=True)
            install = [npm, "install", "--prefix", str(home), "--no-audit", "--no-fund"]
            done = subprocess.run([*install, RESTATE_SERVER], capture_output=True, check=False)
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip().splitlines()
                raise PeerMissing(f"npm did not install Restate's server: {said[-1:]}")
            (home / "stamp").write_text(RESTATE_SERVER, encoding="utf-8")
    for program in home.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"):
        return program
    raise PeerMissing("npm has no Restate server for this kind of machine")


def _is_ready(home: Path, wanted: str) -> bool:
    stamp = home / "stamp"
    return stamp.exists() and stamp.read_text(encoding="utf-8") == wanted


def _dev() -> ModuleType:
    """./dev as a module: it knows where packages come from here."""
    loader = importlib.machinery.SourceFileLoader("dev_script", str(ROOT / "dev"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
