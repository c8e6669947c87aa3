"""Worker processes, as a deployment has them: `outlast worker`, each in a slot that is filled again
when its process has ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.campaigns.chaos.network import Network
from tests.unit.testkit.faults.proxy import Proxy
from tools.serving.system import ServerMissing, program

ROOT = Path(__file__).parents[3]
GRACE = 20.0
"""Seconds after which a worker that was told to stop counts as one that does not."""


class Clockwork:
    """A clock that can be set: libfaketime, preloaded, which reads how far off it is from a file.
    The monotonic clock is left alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0)

    @staticmethod
    @cache
    def library() -> str | None:
        """Where it is, or None if it cannot be had on this machine."""
        with suppress(ServerMissing):
            program("faketime", "faketime")
        found = sorted(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"))
        return str(found[0]) if found else None

    def set(self, offset: float) -> None:
        """From now on the clock is that many seconds off."""
        partial = self._path.with_suffix(".new")
        partial.write_text(f"{offset:+.3f}\n")
        partial.replace(self._path)

    def environment(self) -> dict[str, str]:
        """For a process that is to live by it."""
        return {
            "LD_PRELOAD": self.library() or "",
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_CACHE_DURATION": "1",  # to read it each time costs more than all the rest
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


class Slot:
    """A place for a worker, with its own way to the store and its own clock."""

    def __init__(
        self,
        number: int,
        folder: Path,
        url: str,
        environment: dict[str, str],
        proxy: Proxy | None,
        clock: Clockwork | None,
        network: Network | None = None,
    ) -> None:
        self.number = number
        self.proxy = proxy
        self.clock = clock
        self.network = network
        self.life = 0
        self.disturbed = False
        self.problems: list[str] = []
        self._folder = folder
        self._url = url
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def fill(self, life: int) -> None:
        """Start a worker."""
        self.life = life
        ours = {
            "CHAOS_URL": self._url,
            "CHAOS_FOLDER": str(self._folder),
            "CHAOS_LIFE": str(life),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            **self._environment,
            **({} if self.clock is None else self.clock.environment()),
        }
        enter = [] if self.network is None else self.network.enter()
        with (self._folder / f"{life}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *enter,
                    sys.executable,
                    "-m",
                    "outlast",
                    "worker",
                    "tests.campaigns.chaos.worker:app",
                ],
                env={**os.environ, **ours},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def at_work(self) -> bool:
        """Whether its worker has asked the store for something."""
        ops = self._folder / f"{self.life}.ops"
        return ops.exists() and ops.stat().st_size > 0

    def kill(self) -> None:
        """`kill -9`, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def send(self, what: signal.Signals) -> None:
        """A signal."""
        assert self._process is not None
        self._process.send_signal(what)

    async def leave(self, *, undisturbed: bool) -> float:
        """Tell it to stop, and wait until it has: how many seconds that took. If nothing else was
        wrong it has to end well, and in time."""
        assert self._process is not None
        begun = time.monotonic()
        self.send(signal.SIGTERM)
        try:
            code = await asyncio.to_thread(self._process.wait, GRACE)
        except subprocess.TimeoutExpired:
            self.problems.append(f"I30: worker {self.life} has not stopped after {GRACE} s")
            self.kill()
            return GRACE
        # One that is told before it has begun to listen ends at once: it holds nothing yet.
        unheard = code == -signal.SIGTERM and not (self._folder / f"{self.life}.log").read_text()
        if code != 0 and undisturbed and not unheard:
            self.problems.append(f"I30: worker {self.life} was told to stop and exited with {code}")
        return time.monotonic() - begun

    def died(self) -> str | None:
        """How it ended, if it did so by itself."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        said = (self._folder / f"{self.life}.log").read_text(errors="replace")[-2000:]
        return f"worker {self.life} ended by itself with {code}:\n{said}"
