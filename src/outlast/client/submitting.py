"""How a run begins that somebody else will run: by name, with arguments as JSON."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from outlast.engine.admission import queued
from outlast.engine.definition import WorkflowDefinition
from outlast.engine.turn import begun
from outlast.errors import InvalidValue, NotFound, PayloadError, Undecodable, WorkflowMisuse
from outlast.model.commit import Commit, Creation
from outlast.model.ids import SCHEDULE_OF
from outlast.model.place import InQueue
from outlast.model.run import Attribute
from outlast.ports.codec import Codec


def submission(
    workflows: Mapping[str, WorkflowDefinition],
    name: str,
    input: Raw,
    codec: Codec,
    run_id: str,
    attributes: dict[str, Attribute],
    place: InQueue | None = None,
) -> Commit:
    """The commit that begins a run, runnable now and nobody's, or in a queue."""
    workflow = workflows.get(name)
    if workflow is None:
        from difflib import get_close_matches  # when it is needed: every start would pay for it

        known = [own for own in sorted(workflows) if not own.startswith(SCHEDULE_OF)]
        near = get_close_matches(name, known, 1)
        unknown = NotFound("workflow", name)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        unknown.args = (f"this app has no workflow {name!r}, {hint}",)
        raise unknown
    recorded = _recorded(workflow, input, codec)
    commit = begun(
        workflow,
        recorded,
        run_id=run_id,
        creation=Creation.NEW,
        attributes=attributes,
        place=place,
    )
    return commit if place is None else queued(commit, place)


def _recorded(workflow: WorkflowDefinition, input: Raw, codec: Codec) -> Raw:
    """The input as a start would have recorded it: read by the annotations, and checked."""
    signature = inspect.signature(workflow.function)
    try:
        given = msgspec.json.decode(input, type=dict[str, Raw])
        unknown = [name for name in given if name not in signature.parameters]
        if unknown:
            raise WorkflowMisuse(f"there is no argument {unknown[0]!r}")
        args, kwargs = workflow.signature.decode_call(codec, input)
        recorded, _, _ = workflow.signature.encode_call(codec, args, kwargs)
    except (msgspec.DecodeError, Undecodable, PayloadError, WorkflowMisuse) as error:
        raise InvalidValue(
            f"the input does not fit {workflow.name}{signature}: {error}. "
            "Give its arguments by name, as one JSON object"
        ) from error
    return recorded
