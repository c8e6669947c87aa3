"""`outlast worker`: run an app until it is told to stop."""

from __future__ import annotations

from functools import partial

import click

from outlast.cli.app_runner import leave, load_app, log_to_stderr, stopping, workflows_of
from outlast.cli.session import Session, with_session
from outlast.worker.background_loop import new_loop


@click.command("worker")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option(
    "--drain",
    type=click.FloatRange(min=0),
    default=25.0,
    show_default=True,
    metavar="SECONDS",
    help="How long steps that run get to end in when the worker is to stop.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@partial(with_session, loop_factory=new_loop)
async def worker_command(session: Session, *, app: str | None, drain: float, verbose: bool) -> None:
    """Run an app: go on with what is unfinished, take what is new. On SIGTERM or Ctrl-C it stops
    taking runs, lets steps end for --drain seconds, hands back what is left, and exits. A second
    signal hands it back at once.

    \b
      outlast worker shop:app
      outlast worker shop.py
    """
    log_to_stderr(verbose=verbose)
    loaded = load_app(app, session.place.url if session.store_given else None)
    loaded.drain = drain
    with stopping() as stop:
        stop.hurry = loaded.hurry
        async with loaded:
            session.out.note(f"running {workflows_of(loaded)}; stop with Ctrl-C or SIGTERM")
            await stop.asked.wait()
            session.out.note(f"stopping: what runs has {drain:g} s to end")
    session.out.note("stopped")
    leave(stop)
