"""`outlast dev`: run an app, and again at every change of its code.

There is one process. At a change the app is closed, which hands back what is under way, and the
process begins anew with the new code; runs go on from their last recorded step.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from pathlib import Path

import click

from outlast.cli.app_runner import (
    Stop,
    app_name,
    file_of,
    leave,
    load_app,
    log_to_stderr,
    stopping,
    workflows_of,
)
from outlast.cli.session import Session, with_session

LOOK_AGAIN = 0.3


@click.command("dev")
@click.argument("app", metavar="[APP.PY]", required=False)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@with_session
async def dev_command(session: Session, *, app: str | None, verbose: bool) -> None:
    """Run the app of a file, and begin anew whenever its code changes.

    \b
      outlast dev app.py
      outlast dev shop:app
    """
    log_to_stderr(verbose=verbose)
    out = session.out
    # What is written while the code is loaded counts as a change.
    before = _files(app_name(app))
    with stopping() as stop:
        try:
            loaded = load_app(app, session.place.url if session.store_given else None)
        except (click.UsageError, KeyboardInterrupt):
            raise
        except Exception:  # noqa: BLE001 - it is the user's code, and will be mended
            out.note(traceback.format_exc())
            out.note("this code cannot be loaded; waiting for a change")
            await _changed(stop, before)
        else:
            files = {**_files(app_name(app)), **before}
            stop.hurry = loaded.hurry
            async with loaded:
                out.note(f"running {workflows_of(loaded)}; begins anew when the code changes")
                await _changed(stop, files)
    if stop.by is None:
        out.note("the code has changed")
        sys.stdout.flush()
        # Itself, with the arguments that it was given.
        os.execv(  # noqa: S606
            sys.executable, [sys.executable, "-m", "outlast", *sys.argv[1:]]
        )
    out.note("stopped")
    leave(stop)


def _files(named: str) -> dict[Path, float]:
    """The files of the app's own code, and when they were written."""
    file = file_of(named)
    home = file.resolve().parent if file is not None else Path.cwd()
    loaded = {
        Path(path) for m in list(sys.modules.values()) if (path := getattr(m, "__file__", None))
    }
    own = {
        path for path in loaded if path.is_relative_to(home) and "site-packages" not in path.parts
    }
    return {path: _written(path) for path in own | set(home.glob("*.py"))}


async def _changed(stop: Stop, files: dict[Path, float]) -> None:
    """Return when a file has changed, or it is told to stop."""
    while not stop.asked.is_set():
        try:
            await asyncio.wait_for(stop.asked.wait(), LOOK_AGAIN)
        except TimeoutError:
            if any(_written(path) != written for path, written in files.items()):
                return


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
