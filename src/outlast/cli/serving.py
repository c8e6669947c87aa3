"""Serving: an app runs here until somebody says stop, and then hands back what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator

from outlast.app import App
from outlast.cli.codes import Exit
from outlast.engine.steps.step_executor import in_threads

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGHUP is the end of a terminal, or of the connection to it."""


class Stop:
    """Set by the first signal to stop; the second one cuts short what that waits for, and a third one
    ends the process as it usually does."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.by: signal.Signals | None = None
        self.hurry: Callable[[], None] = lambda: None
        """What the second signal does."""
        # Afterwards nobody can tell: a terminal that is gone is none.
        self._terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def ask(self, by: signal.Signals) -> None:
        """Somebody says stop."""
        if by is signal.SIGHUP:
            self._let_go_of_terminals()
        if self.by is None:
            self.by = by
            self.asked.set()
            return
        self.hurry()
        loop = asyncio.get_running_loop()
        for one in _heard():
            loop.remove_signal_handler(one)

    def _let_go_of_terminals(self) -> None:
        """They are gone. Whoever printed would fail: a step that is to be handed back, for instance."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in self._terminals:
            os.dup2(nothing, stream)
        os.close(nothing)


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Listen to the signals that say stop."""
    stop, loop = Stop(), asyncio.get_running_loop()
    heard = _heard()
    for one in heard:
        loop.add_signal_handler(one, stop.ask, one)
    try:
        yield stop
    finally:
        for one in heard:
            loop.remove_signal_handler(one)


def _heard() -> list[signal.Signals]:
    """Who was started with `nohup` is to go on without its terminal."""
    return [one for one in STOPPING if signal.getsignal(one) is not signal.SIG_IGN]


def leave(stop: Stop) -> None:
    """End a command that was told to stop. StepExecutor in threads cannot be stopped, and Python would
    wait for them at its end: their runs are handed back, so the process ends without them."""
    code = Exit.INTERRUPTED if stop.by is signal.SIGINT else Exit.OK
    if in_threads:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    if code:
        raise SystemExit(code)


def log_to_stderr(*, verbose: bool) -> None:
    """Show what the library and the app log."""
    form = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format=form)


def workflows_of(app: App) -> str:
    """The names of what an app runs, for a line."""
    return ", ".join(sorted(app.workflow_names)) or "no workflow"
