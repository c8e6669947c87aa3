"""What all servers need: their programs, a free port, a process that is stopped for certain."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

PATIENCE = 60.0
_installing = threading.Lock()


class ServerMissing(Exception):
    """A server cannot be had or does not start; the text says what to do."""


def program(name: str, package: str, *folders: str) -> str:
    """The path of a program; its system package is installed if it is missing."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", *folders])
    found = shutil.which(name, path=path)
    if found is None:
        with _installing:
            found = shutil.which(name, path=path) or _install(name, package, path)
    return found


def _install(name: str, package: str, path: str) -> str:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ServerMissing(f"{name} is not here: install the system package {package}")
    print(f"servers: installing {package}", file=sys.stderr)
    # Its service must not be started: what the tests use is theirs alone.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    install = ["apt-get", "install", "-q", "-y", "--no-install-recommends", package]
    said = ""
    for command in (install, ["apt-get", "update", "-q"], install):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        said = f"{done.stdout}{done.stderr}"
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise ServerMissing(f"{package} could not be installed:\n{said}")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """A server's process, with its output in a file. All that were started are stopped by
    `stop_all`, also when a later one fails to start."""

    running: ClassVar[list[Process]] = []

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        name: str,
        user: int | None = None,
        stop_by: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.log = folder / f"{name}.log"
        self._name = name
        self._stop_by = stop_by
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=user,
                start_new_session=True,  # Ctrl-C is for the tests; we stop the servers after them
            )
        Process.running.append(self)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Return when `ready` says so; `ServerMissing` with the server's output if it does not."""
        deadline = time.monotonic() + PATIENCE
        while not ready():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                said = self.log.read_text(errors="replace")[-4000:]
                raise ServerMissing(f"{self._name} does not start:\n{said}")

    def stop(self) -> None:
        """End it, at last by force."""
        if self._process.poll() is None:
            self._process.send_signal(self._stop_by)
            try:
                self._process.wait(PATIENCE / 6)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def end(self, how: signal.Signals) -> None:
        """Send a signal that ends it, and wait until it is gone."""
        self._process.send_signal(how)
        self._process.wait()

    def kill(self) -> None:
        """`kill -9`, and wait until it is gone."""
        self.end(signal.SIGKILL)


def stop_all() -> None:
    """End all servers, the last one first."""
    while Process.running:
        Process.running.pop().stop()


def listens(port: int) -> bool:
    """Whether somebody answers on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
