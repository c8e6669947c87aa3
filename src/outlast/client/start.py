"""StartRequest: which workflow to start, with which input, in its recorded form.

A request comes from a `Call`, or from the name of a workflow whose code may be elsewhere. Without the code
the names of the parameters are unknown: positional arguments are recorded under ``*``, and the worker that
has the code binds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from outlast.call import check_call, mark_used
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.definitions.signature import POSITIONAL
from outlast.engine.replay.execution import current_execution
from outlast.errors import (
    InvalidValue,
    NotFound,
    OutlastError,
    PayloadError,
    Undecodable,
    WorkflowMisuse,
)
from outlast.model.event import payload_of
from outlast.model.ids import SCHEDULE_OF, check_name
from outlast.model.payloads import WorkflowStarted
from outlast.model.run import Run
from outlast.ports.codec import Codec
from outlast.ports.store import Store


class StartRequest(NamedTuple):
    """A workflow to start, and its input as history records it."""

    workflow: str
    definition: WorkflowDefinition | None
    input: Raw


def request_of(
    call: object,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    workflows: Mapping[str, WorkflowDefinition],
    codec: Codec,
    where: str = "start",
) -> StartRequest:
    """What to start: a call, or the name of a workflow and its arguments."""
    if current_execution() is not None:
        mark_used(call)
        raise WorkflowMisuse(
            f"workflow code called {where}(): await the call of the workflow, `await order(…)`. That is a "
            "child run, which is recorded"
        )
    if isinstance(call, str):
        return _request_by_name(check_name(call, "workflow name"), args, kwargs, workflows, codec)
    given = check_call(call, where)
    definition = given.workflow.definition
    if args or kwargs is not None:
        raise WorkflowMisuse(
            f"{where}({definition.name}(…), …) has arguments beside the call: give them to the "
            f"workflow, {where}({definition.name}(…))"
        )
    input, _, _ = definition.signature.encode_call(codec, given.args, given.kwargs)
    return StartRequest(definition.name, definition, input)


def _request_by_name(
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    workflows: Mapping[str, WorkflowDefinition],
    codec: Codec,
) -> StartRequest:
    given: dict[str, Any] = {} if kwargs is None else dict(kwargs)
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise InvalidValue(
            f"start({name!r}, {args!r}): give the arguments as a list, start({name!r}, [{args!r}])"
        )
    recorded = {key: _encoded(codec, value, f"argument {key!r}") for key, value in given.items()}
    if args:
        positional = [_encoded(codec, value, "argument") for value in args]
        recorded = {POSITIONAL: Raw(msgspec.json.encode(positional)), **recorded}
    input = Raw(msgspec.json.encode(recorded))
    definition = workflows.get(name)
    if definition is not None:
        return StartRequest(name, definition, _checked(definition, input, codec))
    if workflows:
        raise _unknown(name, workflows)
    return StartRequest(name, None, input)


def _encoded(codec: Codec, value: Any, where: str) -> Raw:
    # Raw is JSON that is encoded already: that of the command line.
    return value if isinstance(value, Raw) else codec.encode_untyped(value, where=where)


def _unknown(name: str, workflows: Mapping[str, WorkflowDefinition]) -> NotFound:
    from difflib import get_close_matches  # loaded for this error alone

    known = [own for own in sorted(workflows) if not own.startswith(SCHEDULE_OF)]
    near = get_close_matches(name, known, 1)
    unknown = NotFound("workflow", name)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    unknown.args = (f"this app has no workflow {name!r}, {hint}",)
    return unknown


def _checked(definition: WorkflowDefinition, input: Raw, codec: Codec) -> Raw:
    """The input as a call would have recorded it: decoded by the annotations, and encoded again."""
    signature = definition.signature
    try:
        args, kwargs = signature.decode_call(codec, input)
        recorded, _, _ = signature.encode_call(codec, args, kwargs)
    except (Undecodable, PayloadError, WorkflowMisuse) as error:
        raise InvalidValue(
            f"the input does not fit {definition.name}{signature.text}: {error}"
        ) from error
    return recorded


async def difference(request: StartRequest, run: Run, store: Store, codec: Codec) -> str:
    """In what a run differs from the one that is requested: its workflow, or arguments by name; empty if it was started
    with the same workflow and input."""
    if run.workflow != request.workflow:
        return f"workflow ({run.workflow!r}, not {request.workflow!r})"
    if await _is_same_input(request, run, store, codec):
        return ""
    names = _differing(request, run, codec)
    return (
        f"input ({', '.join(names)} differ{'s' if len(names) == 1 else ''})" if names else "input"
    )


def _differing(request: StartRequest, run: Run, codec: Codec) -> list[str]:
    """The parameters whose values differ; empty if that cannot be said."""
    if request.definition is None or run.input is None:
        return []
    signature = request.definition.signature
    try:
        given, there = (signature.decode_call(codec, one) for one in (request.input, run.input))
        return [
            name
            for name in signature.names
            if signature.argument(name, *given) != signature.argument(name, *there)
        ]
    except (OutlastError, TypeError, KeyError):
        return []


async def _is_same_input(request: StartRequest, run: Run, store: Store, codec: Codec) -> bool:
    given = _values(request.definition, request.input, codec)
    for input in await _inputs(run, store):
        try:
            if given == _values(request.definition, input, codec):
                return True
        except Undecodable:
            continue
    return False


async def _inputs(run: Run, store: Store) -> list[Raw]:
    """What a run was started with: its input, and if it has continued as new, the first."""
    inputs = [] if run.input is None else [run.input]
    for event in await store.history(run.id, limit=1):
        started = payload_of(event)
        if isinstance(started, WorkflowStarted) and started.origin is not None:
            inputs.append(started.origin)
    return inputs


def _values(definition: WorkflowDefinition | None, input: Raw, codec: Codec) -> Any:
    """An input as values: as text, a set or a dict would differ by its order."""
    if definition is not None:
        return definition.signature.decode_call(codec, input)
    # A call records its arguments in the order of the parameters.
    recorded = msgspec.json.decode(input)
    positional = recorded.pop(POSITIONAL, [])
    return [*positional, *recorded.values()]
