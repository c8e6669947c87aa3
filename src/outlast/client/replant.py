"""How a run begins anew with a part of its history, in place or under another id."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from outlast.engine.definition import WorkflowDefinition
from outlast.engine.replanting import open_children, restarted, seeded
from outlast.errors import WorkflowMisuse
from outlast.model.commit import Commit, Creation
from outlast.model.event import Event
from outlast.model.ids import SEPARATOR, child_id
from outlast.model.run import Run
from outlast.model.times import NOW
from outlast.ports.codec import Codec


def edited_input(
    workflow: WorkflowDefinition | None, run: Run, codec: Codec, changes: dict[str, Any]
) -> Raw:
    """The input of a run with some arguments, by name, replaced by others."""
    if workflow is None:
        raise WorkflowMisuse(
            f"the arguments of workflow {run.workflow!r} can only be edited where its code is: "
            f"App(…, workflows=[{run.workflow}])"
        )
    args, kwargs = workflow.signature.decode_call(codec, run.input or Raw(b"{}"))
    return workflow.signature.edit_call(codec, args, kwargs, changes)


def forked(
    run: Run,
    events: list[Event],
    workflows: dict[str, WorkflowDefinition],
    *,
    run_id: str,
    input: Raw | None,
) -> Commit:
    """The commit that begins a run with `events` of `run` as its past. Children that they wait for are
    the other run's, whatever becomes of them: this one begins its own."""
    fresh = fresh_life(run, run_id=run_id, input=input)
    starts, children = [], {}
    for key, spawned in open_children(events).items():
        own = "" if SEPARATOR in spawned.child_run_id else spawned.child_run_id
        children[key] = own or child_id(run_id, key)
        workflow = workflows.get(spawned.workflow_name)
        starts.append(restarted(children[key], spawned, workflow, fresh))
    return Commit(
        run_id=run_id,
        create=fresh,
        creation=Creation.NEW,
        events=copies(seeded(events, run, input, children=children), run_id),
        starts=tuple(starts),
    )


def fresh_life(run: Run, *, run_id: str, input: Raw | None = None) -> Run:
    """The record of a run that begins as another was."""
    return Run(
        id=run_id,
        workflow=run.workflow,
        version=run.version,
        definition=run.definition,
        input=input or run.input,
        attributes=run.attributes,
        queue=run.queue,
        priority=run.priority,
        runnable_at=NOW,
    )


def copies(events: list[Event], run_id: str) -> tuple[Event, ...]:
    """Events as those of another life, which the store numbers."""
    return tuple(
        msgspec.structs.replace(event, run_id=run_id, sequence=0, token=0) for event in events
    )
