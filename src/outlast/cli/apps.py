"""The app that is meant: ``module:name``, ``folder/file.py``, or ``[tool.outlast] app``.

What is named is an `outlast.App`, an `outlast.sync.App`, or a function that gives one; the function
may take the URL of the store. Without a name the module's only app is taken.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from outlast import sync
from outlast.app import App
from outlast.cli.place import find_place, settings_here
from outlast.cli.text import neutral


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
