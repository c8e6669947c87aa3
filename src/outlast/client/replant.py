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


def replanted(
    run: Run,
    events: list[Event],
    workflows: dict[str, WorkflowDefinition],
    *,
    run_id: str,
    replace: str | None,
    input: Raw | None = None,
) -> Commit:
    """The commit that begins a run with `events` of `run` as its past; with `replace`, the uid of
    that run, in its place."""
    fresh = Run(
        id=run_id,
        workflow=run.workflow,
        version=run.version,
        definition=run.definition,
        input=input or run.input,
        recover_to=run.recover_to if replace is not None else None,
        attributes=run.attributes,
        parent=run.parent if replace is not None else None,
        queue=run.queue,
        priority=run.priority,
        runnable_at=NOW,
    )
    copies = tuple(
        msgspec.structs.replace(event, run_id=run_id, sequence=0, token=0)
        for event in seeded(events, run, input, again=replace is not None)
    )
    starts = tuple(
        restarted(run_id, key, child, workflows.get(child.workflow_name))
        for key, child in open_children(events).items()
    )
    return Commit(
        run_id=run_id,
        uid=replace,
        force=replace is not None,
        create=fresh,
        creation=Creation.NEW if replace is None else Creation.REPLACE,
        events=copies,
        starts=starts,
    )
