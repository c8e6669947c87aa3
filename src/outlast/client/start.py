"""StartRequest: which workflow to start, with which input, in its recorded form.

A request comes from a `Call`, or from the name of a workflow whose code may be elsewhere. Without the code
the names of the parameters are unknown: positional arguments are recorded under ``*``, and the worker that
has the code binds them.

Debouncing: many requests for one run, which starts when none has come for a while. The run waits in a queue for its
time. Each further request replaces it, with its own arguments and a later time, in one commit that only the pending run
allows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from outlast.call import check_call, mark_used
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.definitions.signature import POSITIONAL
from outlast.engine.replay.commit_builder import QUEUED, NewRun
from outlast.engine.replay.execution import current_execution
from outlast.errors import (
    Busy,
    Conflict,
    Fenced,
    InvalidValue,
    NotFound,
    OutlastError,
    PayloadError,
    RunClosed,
    RunExists,
    Undecodable,
    WorkflowMisuse,
)
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.event import payload_of
from outlast.model.ids import SCHEDULE_OF, check_name
from outlast.model.payloads import WorkflowStarted
from outlast.model.query import RunQuery
from outlast.model.queue_policy import QueueOptions
from outlast.model.run import Run, Status
from outlast.model.times import check_delay, from_micros, to_micros
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


RETRY_DELAYS_S = (0.02, 0.05, 0.1, 0.2, *[0.4] * 40)
"""At most, before each further attempt while another transaction has the run locked: most likely it is a
request for the same run."""
KEY, SINCE = "outlast.debounced", "outlast.debounced_since"
_jitter = random.Random()


def check_times(quiet: float, at_most: float | None) -> None:
    """Refuse times in which nothing could ever start, or everything at once."""
    check_delay(quiet)
    check_delay(0.0 if at_most is None else at_most)
    if quiet == 0 or (at_most is not None and at_most < quiet):
        raise InvalidValue(
            f"quiet={quiet}, at_most={at_most} is not possible: quiet has to be more than 0, and "
            "at_most no less than quiet"
        )


async def debounced(
    store: Store,
    request: StartRequest,
    *,
    key: str,
    quiet: float,
    at_most: float | None,
    queue: QueueOptions,
) -> str:
    """Put a start off, or begin to wait for one; the id of the run."""
    prefix = f"{request.workflow}.{key}."
    query = RunQuery(workflow=request.workflow, attributes={KEY: key}, limit=1)
    newest = next(iter((await store.find(query)).items), None)
    delays = list(RETRY_DELAYS_S)
    while True:
        now = await store.now()
        pending = newest if newest is not None and _is_pending(newest, request, key) else None
        since = now if pending is None else _since(pending, now)
        due = now + timedelta(seconds=quiet)
        if at_most is not None:
            due = min(due, since + timedelta(seconds=at_most))
        new = NewRun(
            id=f"{prefix}{_generation(newest, prefix) + 1}" if pending is None else pending.id,
            workflow=request.workflow,
            definition=request.definition,
            input=request.input,
            creation=Creation.NEW if pending is None else Creation.REPLACE,
            attributes={KEY: key, SINCE: to_micros(since)},
            queue=QueueOptions(queue.queue, queue.key, queue.priority, max(due, now)).resolved(now),
        )
        commit = new.commit()
        if pending is not None:
            commit = _replacing(pending, commit)
        outcome: Outcome
        try:
            [outcome] = await store.commit([commit])
        except Busy as busy:
            outcome = busy
        if isinstance(outcome, Committed):
            return new.id
        if isinstance(outcome, Busy) and delays:
            await store.clock.sleep(_jitter.uniform(0.0, delays.pop(0)))
        elif not isinstance(outcome, RunExists | Fenced | Conflict | NotFound | RunClosed):
            raise outcome
        # Another request was faster, or a worker has started the run.
        newest = await store.find_one(new.id)


def _is_pending(run: Run, request: StartRequest, key: str) -> bool:
    """Whether it is the run of that key, and has not started."""
    own = run.workflow == request.workflow and run.attributes.get(KEY) == key
    return own and run.status is Status.PENDING and run.wait_kind == QUEUED


def _since(run: Run, now: datetime) -> datetime:
    since = run.attributes.get(SINCE)
    return from_micros(since) if isinstance(since, int) else now


def _generation(newest: Run | None, prefix: str) -> int:
    number = "" if newest is None else newest.id.removeprefix(prefix)
    return int(number) if number.isdigit() else 0


def _replacing(run: Run, commit: Commit) -> Commit:
    """The commit that replaces a run which has not started, and only that life of it."""
    return msgspec.structs.replace(
        commit,
        uid=run.uid,
        token=run.token or None,
        expected=run.sequence,
        force=False,
        carry_inbox=True,
    )
