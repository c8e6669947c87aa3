"""A small shop with runs in every state, and ways to call `outlast` on it: in this process, in one
of its own, and in a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SHOP = """
import asyncio, os
import outlast

@outlast.step
async def charge(amount: int) -> str:
    return f"paid {amount}"

@charge.compensate
async def refund(receipt: str) -> None: ...

@outlast.step(retry=outlast.Retry(attempts=2, delay=0.01))
async def ship(order: str) -> str:
    if order == "lost" and outlast.step_info().attempt == 1:
        raise ConnectionError("no answer")
    if order == "lost":
        raise RuntimeError("timeout at the carrier")
    return f"shipped {order}"

@outlast.workflow
async def pack(order: str) -> str:
    return await ship(order)

@outlast.workflow
async def checkout(order: str, amount: int = 10) -> dict[str, str]:
    receipt = await charge(amount)
    await asyncio.gather(ship("box"), ship("bag"))
    await outlast.map(ship, ["a", "b", "c"])
    if order == "waits":
        await outlast.wait_for_signal("go", timeout=3600)
    if order == "halts":
        await outlast.halt({"question": "really?"})
    if order == "sleeps":
        await outlast.sleep(3600)
    return {"receipt": receipt, "packed": await pack(order)}

@outlast.workflow
async def counter(start: int) -> int:
    @outlast.on_update
    def add(number: int) -> int:
        return start + number
    await outlast.wait_for_signal("stop")
    return start

app = outlast.App(os.environ.get("SHOP_STORE", "sqlite:///outlast.db"), workflows=[checkout, pack, counter])

def make(url: str) -> outlast.App:
    return outlast.App(url, workflows=[checkout, pack, counter])

async def fill(prefix: str = "order") -> None:
    async with app:
        for order in ("done", "lost", "waits", "halts", "sleeps"):
            run = await app.start(checkout(order), id=f"{prefix}-{order}", attributes={"tenant": "acme", "size": 3})
        for order in ("done", "lost"):
            try:
                await app.get(f"{prefix}-{order}").result()
            except outlast.errors.RunFailed:
                pass
        for order in ("waits", "halts", "sleeps"):
            notifier = app.store.notifier
            while True:
                wakeups = notifier.wakeups
                if (await app.get(f"{prefix}-{order}").status()).status in ("waiting", "halted"):
                    break
                await notifier.wait(app.store.clock, 1, since=wakeups)

if __name__ == "__main__":
    import sys
    asyncio.run(fill(*sys.argv[1:]))
"""

COMMAND = [sys.executable, "-m", "outlast"]
QUIET = ("NO_COLOR", "OUTLAST_STORE", "OUTLAST_APP", "COLUMNS", "LINES", "CI")


def environment(**more: str) -> dict[str, str]:
    """The variables for a process, without those that would change what it shows."""
    own = {name: value for name, value in os.environ.items() if name not in QUIET}
    return {**own, "TERM": "xterm", "PYTHONUNBUFFERED": "1", **more}


def piped(
    folder: Path, *args: str, input: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """`outlast` in a process of its own, its output in a pipe."""
    return subprocess.run(
        [*COMMAND, *args],
        cwd=folder,
        env=environment(**variables),
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def records(text: str) -> list[Any]:
    """The JSON values of an output, one a line."""
    return [json.loads(line) for line in text.splitlines()]


def heed_signals() -> None:
    """In a process that is about to start: no signal is ignored, though these tests may have been started in
    the background, where a shell has Ctrl-C ignored, or with `nohup`, which outlast respects."""
    for one in (signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)


def _sit_at_the_terminal() -> None:
    """The terminal's keys are to reach the process, as Ctrl-C does."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    heed_signals()


class Terminal:
    """`outlast` in a terminal of some width; what it shows is kept in `shown`."""

    def __init__(self, folder: Path, args: tuple[str, ...], width: int, **variables: str) -> None:
        self._main, other = pty.openpty()
        termios.tcsetwinsize(other, (40, width))
        self.process = subprocess.Popen(
            [*COMMAND, *args],
            cwd=folder,
            env=environment(PYTHONFAULTHANDLER="1", **variables),
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            preexec_fn=_sit_at_the_terminal,  # noqa: PLW1509
        )
        os.close(other)
        self.shown = ""

    def read_until(self, text: str) -> None:
        """Read on until something is shown."""
        while text not in self.shown:
            assert self._read(), f"{text!r} was not shown, but: {self.shown}"

    def read_for(self, seconds: float) -> bool:
        """Read what is shown, and wait no longer than that for it to begin; whether anything came."""
        return bool(select.select([self._main], [], [], seconds)[0]) and self._read()

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._main, keys.encode())

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(30)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._main)

    def _read(self) -> bool:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if select.select([self._main], [], [], 0.5)[0]:
                try:
                    data = os.read(self._main, 65_536)
                except OSError:  # the other side is closed
                    return False
                self.shown += data.decode("utf-8", "replace")
                return bool(data)
        before, self.shown = self.shown, ""
        self._show_where_it_stands()
        raise AssertionError(f"nothing for a minute after {before!r}; it stood at\n{self.shown}")

    def _show_where_it_stands(self) -> None:
        os.kill(self.process.pid, signal.SIGABRT)  # faulthandler tells, and ends it
        with suppress(OSError):
            while select.select([self._main], [], [], 5.0)[0] and (
                data := os.read(self._main, 65_536)
            ):
                self.shown += data.decode("utf-8", "replace")


@contextmanager
def terminal(folder: Path, *args: str, width: int = 100, **variables: str) -> Iterator[Terminal]:
    """A terminal in which `outlast` runs."""
    opened = Terminal(folder, args, width, **variables)
    try:
        yield opened
    finally:
        opened.close()
