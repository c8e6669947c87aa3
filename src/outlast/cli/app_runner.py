"""Loads the app that a command names, and runs it until a signal stops it.

An app is named as ``module:name``, ``folder/file.py``, or ``[tool.outlast] app``. The name refers to an
`outlast.App`, an `outlast.sync.App`, or a function that returns one; the function may take the URL of the
store. Without a name the module's only app is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from outlast import sync
from outlast.app import App
from outlast.cli.main import Exit
from outlast.cli.output import neutral
from outlast.cli.session import find_place, settings_here
from outlast.engine.steps.step_executor import in_threads


def load_app(named: str | None, store: str | None = None) -> App:
    """The app that is named on the command line, in OUTLAST_APP, or in pyproject.toml."""
    module_name, _, attribute = app_name(named).partition(":")
    module = _module(module_name)
    found = getattr(module, attribute, None) if attribute else _only_app(module)
    if found is None:
        raise click.UsageError(
            f"{module_name} has no {attribute or 'app'!r}: "
            f"name what is there, as in {module_name}:app"
        )
    if inspect.isroutine(found):
        takes_url = bool(inspect.signature(found).parameters)
        found = found(find_place(store).url) if takes_url else found()
    elif store is not None and isinstance(found, App | sync.App):
        raise click.UsageError(
            f"{module_name} chooses its own store: leave --store out, or name a function that takes "
            "a store's URL and gives the app"
        )
    if isinstance(found, sync.App):
        return found.to_async()
    if not isinstance(found, App):
        raise click.UsageError(
            f"{neutral(app_name(named))} is a {type(found).__name__}, not an outlast.App"
        )
    return found


def app_name(named: str | None) -> str:
    """How the app is called."""
    name = named or os.environ.get("OUTLAST_APP") or settings_here()[0].get("app")
    if not name:
        raise click.UsageError(
            "which app? Name it as module:app, in OUTLAST_APP, or as app = … under [tool.outlast] "
            "in pyproject.toml"
        )
    return str(name)


def file_of(named: str) -> Path | None:
    """The file of an app that is named by it."""
    path = Path(named.partition(":")[0])
    return path if path.suffix == ".py" else None


def _module(name: str) -> ModuleType:
    path = file_of(name)
    if path is None:
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            raise click.UsageError(
                f"there is no module {neutral(name)!r} here or installed: run this in the folder "
                "that has it, or name its file"
            ) from error
    if not path.is_file():
        raise click.UsageError(f"there is no file {neutral(str(path))}")
    sys.path.insert(0, str(path.resolve().parent))
    # Under its own name, so that types and steps in processes of their own are found again.
    return importlib.import_module(path.stem)


def _only_app(module: ModuleType) -> Any:
    apps = {
        id(value): name for name, value in vars(module).items() if isinstance(value, App | sync.App)
    }
    if len(apps) > 1:
        names = ", ".join(apps.values())
        raise click.UsageError(
            f"{module.__name__} has several apps, {names}: choose one with :name"
        )
    return getattr(module, next(iter(apps.values()))) if apps else None


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
