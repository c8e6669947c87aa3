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
            f"name an app that it defines, as in {module_name}:app"
        )
    if inspect.isroutine(found):
        takes_url = bool(inspect.signature(found).parameters)
        found = found(find_place(store).url) if takes_url else found()
    elif store is not None and isinstance(found, App | sync.App):
        raise click.UsageError(
            f"{module_name} chooses its own store: omit --store, or name a function that takes the URL of "
            "a store and returns the app"
        )
    if isinstance(found, sync.App):
        return found.to_async()
    if not isinstance(found, App):
        raise click.UsageError(
            f"{neutral(app_name(named))} is a {type(found).__name__}, not an outlast.App"
        )
    return found


def app_name(named: str | None) -> str:
    """The name of the app to load."""
    name = named or os.environ.get("OUTLAST_APP") or settings_here()[0].get("app")
    if not name:
        raise click.UsageError(
            "no app is named: pass MODULE:APP, set OUTLAST_APP, or write app = … under [tool.outlast] "
            "in pyproject.toml"
        )
    return str(name)


def file_of(named: str) -> Path | None:
    """The file of an app that is named by its file."""
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
                f"there is no module {neutral(name)!r} here or installed: run the command in the folder "
                "that contains it, or name its file"
            ) from error
    if not path.is_file():
        raise click.UsageError(f"there is no file {neutral(str(path))}")
    sys.path.insert(0, str(path.resolve().parent))
    # Registered under its own name, so that pickled types and step subprocesses can import it.
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
"""SIGHUP is sent when a terminal or the connection to it is closed."""


class Stop:
    """Set by the first signal to stop. The second signal ends the grace period, and a third one has its
    default effect."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.by: signal.Signals | None = None
        self.hurry: Callable[[], None] = lambda: None
        """The effect of the second signal."""
        # Checked now, because a closed terminal no longer says that it was one.
        self._terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def ask(self, by: signal.Signals) -> None:
        """A signal to stop has arrived."""
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
        """The terminal is closed: redirect the streams, so that a print in a step does not raise."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in self._terminals:
            os.dup2(nothing, stream)
        os.close(nothing)


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Handle the signals to stop in this block."""
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
    """The signals to handle: without SIGHUP if the process was started with `nohup`."""
    return [one for one in STOPPING if signal.getsignal(one) is not signal.SIG_IGN]


def leave(stop: Stop) -> None:
    """End a command after a signal to stop. Step functions in threads cannot be interrupted, and Python
    would wait for them at exit. Their runs have been released, so the process ends without waiting."""
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
    """Log the messages of the library and of the app to standard error."""
    form = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format=form)


def workflows_of(app: App) -> str:
    """The names of an app's workflows, as one line."""
    return ", ".join(sorted(app.workflow_names)) or "no workflow"
