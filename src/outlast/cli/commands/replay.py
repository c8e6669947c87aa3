"""`outlast replay`: run a workflow's code on a recorded history, optionally in the debugger.

No step is executed and nothing is written: the results of steps are read from the file.
"""

from __future__ import annotations

import inspect
import pdb
import signal
import sys
from pathlib import Path
from types import FrameType

import click

from outlast.app import App
from outlast.cli.app_runner import load_app
from outlast.cli.export_file import read
from outlast.cli.output import neutral
from outlast.cli.session import Session, with_session
from outlast.codecs import JsonCodec
from outlast.decorators import Workflow
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.operation import Operation
from outlast.engine.replay.error_text import frame_of_coroutine, location_of
from outlast.engine.replay.execution import ENDINGS, Execution
from outlast.errors import NotFound
from outlast.testing.history_replay import replay
from outlast.transfer import Bundle


@click.command("replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--app", "named", metavar="MODULE:APP", help="The app with the workflow's code.")
@click.option(
    "--break-at", "step", metavar="STEP", help="Stop in the debugger where this step is called."
)
@with_session
async def replay_command(
    session: Session, *, file: Path, named: str | None, step: str | None
) -> None:
    """Run the code of an exported run on its history, to check that it still matches or to debug it.

    \b
      outlast replay order-1.outlast --app shop:app
      outlast replay order-1.outlast --app shop:app --break-at charge
    """
    with file.open("rb") as opened:
        _, runs = read(opened, file.name)
    app = load_app(named, session.place.url if session.store_given else None)
    out = session.out
    for one in runs if step is None else runs[:1]:
        definition = _definition(app, one)
        if step is not None:
            _debug(definition, one, step)
            out.note("the end of the recorded history")
            return
        outcome = replay(Workflow(definition), one.events, uid=one.run.uid)
        if out.json:
            out.value(
                {
                    "id": one.run.id,
                    "fits": True,
                    "waits_for": outcome.waits_for,
                    "asks": outcome.asks,
                }
            )
        else:
            goes = f", and then requests {', '.join(outcome.asks)}" if outcome.asks else ""
            out.line(
                f"{neutral(one.run.id)}: the code matches its {len(one.events)} events{neutral(goes)}"
            )


def _definition(app: App, one: Bundle) -> WorkflowDefinition:
    definition = app.definition(one.run.workflow)
    if definition is None:
        raise NotFound("workflow", one.run.workflow)
    return definition


def _debug(definition: WorkflowDefinition, one: Bundle, step: str) -> None:
    if not any(event.step_name == step for event in one.events):
        names = dict.fromkeys(event.step_name for event in one.events if event.step_name)
        raise click.UsageError(
            f"no step {step!r} in this history; there are {', '.join(map(neutral, names))}"
        )
    events = [event for event in one.events if event.type not in ENDINGS]
    execution = Stopping(
        definition, run_id=one.run.id, uid=one.run.uid, codec=JsonCodec(), step=step
    )
    # The debugger handles Ctrl-C; asyncio.run would replace its handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        execution.replay(events)
    finally:
        signal.signal(signal.SIGINT, before)
        sys.settrace(None)
        execution.evict()


class Stopping(Execution):
    """An execution that opens the debugger where the code calls a step."""

    def __init__(self, *args: object, step: str, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._step = step

    def request(self, operation: Operation) -> Operation:
        asked = super().request(operation)
        if asked.key == self._step:
            self._open_debugger()
        return asked

    def _open_debugger(self) -> None:
        """Open the prompt in the user's frame that calls the step, or that awaits the tasks which call it, as in
        `asyncio.gather(charge(…), ship(…))`."""
        debugger = Debugger()
        frame: FrameType | None = inspect.currentframe()
        while frame is not None and location_of(frame.f_code, frame.f_lineno) is None:
            frame = frame.f_back
        if frame is not None:
            debugger.set_trace(frame)
            return
        waiting = None if self.main is None else frame_of_coroutine(self.main.get_coro())
        if waiting is None:
            click.echo(
                "a plain `def` workflow runs in a thread, where the debugger cannot stop", err=True
            )
            return
        debugger.look_into(waiting)


class Debugger(pdb.Pdb):
    """Steps through the user's code only. Quitting ends the process: an exception in the workflow would look
    like a failure of the run."""

    goes_on = False

    def look_into(self, waiting: FrameType) -> None:
        """The prompt in a frame that is suspended; commands take effect when it resumes."""
        self.reset()
        self.botframe = inspect.currentframe()  # do not stop below this frame
        self.interaction(waiting, None)
        if not self.goes_on or self.get_all_breaks():
            waiting.f_trace = self.trace_dispatch
            sys.settrace(self.trace_dispatch)

    def stop_here(self, frame: FrameType) -> bool:
        is_made_up = frame.f_code.co_filename.startswith("<")
        is_users = not is_made_up and location_of(frame.f_code, frame.f_lineno) is not None
        return is_users and super().stop_here(frame)

    def set_continue(self) -> None:
        self.goes_on = True
        super().set_continue()

    def set_quit(self) -> None:
        self.set_continue()
