"""`outlast replay`: run a workflow's code on a recorded history, under the debugger if wanted.

No step runs and nothing is written: what steps gave is read from the file.
"""

from __future__ import annotations

import inspect
import pdb
import sys
from pathlib import Path
from types import FrameType

import click

from outlast.api import Workflow
from outlast.app import App
from outlast.cli.apps import load_app
from outlast.cli.exports import read
from outlast.cli.neutral import neutral
from outlast.cli.session import Session, with_session
from outlast.codecs import JsonCodec
from outlast.engine.definition import WorkflowDefinition
from outlast.engine.execution import ENDINGS, Execution
from outlast.engine.operations.operation import Operation
from outlast.engine.places import place_of
from outlast.errors import NotFound
from outlast.moving import Cargo
from outlast.testing.replaying import replay


@click.command("replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--app", "named", metavar="MODULE:APP", help="Where its code is.")
@click.option(
    "--break-at", "step", metavar="STEP", help="Stop in the debugger where this step is called."
)
@with_session
async def replay_command(
    session: Session, *, file: Path, named: str | None, step: str | None
) -> None:
    """Run the code of an exported run on its history: does it still fit, and what happened there?

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
            goes = f", and then asks for {', '.join(outcome.asks)}" if outcome.asks else ""
            out.line(
                f"{neutral(one.run.id)}: the code fits its {len(one.events)} events{neutral(goes)}"
            )


def _definition(app: App, one: Cargo) -> WorkflowDefinition:
    definition = app.definition(one.run.workflow)
    if definition is None:
        raise NotFound("workflow", one.run.workflow)
    return definition


def _debug(definition: WorkflowDefinition, one: Cargo, step: str) -> None:
    if not any(event.step_name == step for event in one.events):
        names = dict.fromkeys(event.step_name for event in one.events if event.step_name)
        raise click.UsageError(
            f"no step {step!r} in this history; there are {', '.join(map(neutral, names))}"
        )
    events = [event for event in one.events if event.type not in ENDINGS]
    execution = Stopping(
        definition, run_id=one.run.id, uid=one.run.uid, codec=JsonCodec(), step=step
    )
    try:
        execution.replay(events)
    finally:
        sys.settrace(None)
        execution.evict()


class Stopping(Execution):
    """An execution that opens the debugger where the code asks for a step."""

    def __init__(self, *args: object, step: str, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._step = step

    def ask(self, operation: Operation) -> Operation:
        asked = super().ask(operation)
        if asked.key == self._step:
            _open_debugger()
        return asked


def _open_debugger() -> None:
    """The prompt, in the user's own frame that is calling."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and place_of(frame.f_code, frame.f_lineno) is None:
        frame = frame.f_back
    if frame is None:
        click.echo(
            "a plain `def` workflow runs on a thread of its own: no debugger there", err=True
        )
        return
    debugger = pdb.Pdb(skip=["outlast.*", "asyncio.*", "click.*", "contextlib", "functools"])
    debugger.set_trace(frame)
