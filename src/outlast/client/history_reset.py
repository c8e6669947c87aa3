"""Starts a run again with a part of its history, in place (retry) or under another id (fork).

Retrying: a failed run goes on from before its failure, in another life.

The part of its history before the failure is the beginning of the new life. What the rest of it had
consumed or started is not lost with it::

    children     one that runs, or has completed, is waited for again: same run, same result. One that
                 failed, or was cancelled with its parent, begins again under another id
    steps, maps  what was asked for before the failure and ended after it waits in the inbox: a result
                 is not done again, an error is no interruption
    signals      what was received after the cut waits in the inbox again, before what came later;
    updates      an update is applied again, and its answer stays the one that was given;
    questions    an answer waits until the same is asked again
    the inbox    what was sent and not consumed stays. A request to cancel or to pause is over: the run
                 had ended

The inbox of a run that has ended does not change, so it can be read before the commit that replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from outlast.client.results import Ending, ended
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.step import StepReport
from outlast.engine.replay.history_reset import (
    asked_without_result,
    before_failure,
    failed_within,
    open_children,
    outcomes_after,
    restarted,
    seeded,
    spawned_children,
)
from outlast.engine.replay.updates import answers_to_keep
from outlast.errors import Busy, InvalidValue, RunParked, Undecodable, WorkflowMisuse
from outlast.model.asks import Answer, without_asks
from outlast.model.commit import Commit, Creation
from outlast.model.event import Event, EventType, payload_of
from outlast.model.ids import SEPARATOR, child_id
from outlast.model.json import from_json, to_json
from outlast.model.payloads import (
    ChildSpawned,
    HaltResumed,
    HaltStarted,
    SignalReceived,
    UpdateAccepted,
    UpdateCompleted,
    WorkflowStarted,
)
from outlast.model.run import Run, Status
from outlast.model.run_contents import Item, ItemKind, Send
from outlast.model.times import NOW
from outlast.ports.codec import Codec
from outlast.ports.store import Store


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
    try:
        return workflow.signature.edit_call(codec, args, kwargs, changes)
    except Undecodable as error:
        raise InvalidValue(
            f"the input does not fit {workflow.name}{workflow.signature.text}: {error}"
        ) from error


def forked(
    run: Run,
    events: list[Event],
    workflows: Mapping[str, WorkflowDefinition],
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
        attributes=without_asks(run.attributes),
        queue=run.queue,
        priority=run.priority,
        runnable_at=NOW,
    )


def copies(events: list[Event], run_id: str) -> tuple[Event, ...]:
    """Events as those of another life, which the store numbers."""
    return tuple(
        msgspec.structs.replace(event, run_id=run_id, sequence=0, token=0) for event in events
    )


PAGE = 1000
_OVER = frozenset(
    {ItemKind.CANCEL, ItemKind.PAUSE, ItemKind.UNPAUSE, ItemKind.ADMIT, ItemKind.RECEIPT}
)
"""Items that the end of a run has settled."""


async def retrial(
    store: Store,
    run: Run,
    workflows: Mapping[str, WorkflowDefinition],
    ending: Ending,
    timeout: float | None,
) -> Commit:
    """The commit with which a failed run goes on; `Busy` if children of it are being cancelled for longer
    than `timeout`."""
    history = await store.history(run.id)
    kept = before_failure(history, run.recover_to)
    ids = {event.id for event in kept}
    cut = [event for event in history if event.id not in ids]
    fresh = msgspec.structs.replace(
        fresh_life(run, run_id=run.id),
        recover_to=failed_within(history, run.recover_to),
        parent=run.parent,
    )

    async def goes_on(spawned: ChildSpawned) -> bool:
        return await _goes_on(store, run, spawned, ending, timeout)

    starts, children = [], {}
    for key, spawned in open_children(kept).items():
        if SEPARATOR not in spawned.child_run_id:
            # The run that has an explicit id is the child, in whatever state; only a deleted one starts again.
            if await store.find_one(spawned.child_run_id) is not None:
                continue
            children[key] = spawned.child_run_id
        elif await goes_on(spawned):
            continue
        else:
            children[key] = child_id(run.id, key, fresh.uid)
        workflow = workflows.get(spawned.workflow_name)
        starts.append(restarted(children[key], spawned, workflow, fresh))
    adopts = {
        key: spawned
        for key, spawned in spawned_children(cut).items()
        if SEPARATOR in spawned.child_run_id and await goes_on(spawned)
    }
    started = payload_of(history[0])
    assert isinstance(started, WorkflowStarted)
    asked = asked_without_result(kept, cut, fresh.recover_to, life=run.uid)
    handed_on = msgspec.structs.replace(
        started,
        later=True,
        answers=answers_to_keep(started, cut),
        adopts=adopts,
        asked={**asked, **started.asked},
    )
    consumes, sends = _resent(await _items(store, run.id), history, cut, fresh)
    outcomes = outcomes_after(kept, cut, fresh.recover_to, life=fresh.uid)
    return Commit(
        run_id=run.id,
        uid=run.uid,
        force=True,
        create=fresh,
        creation=Creation.REPLACE,
        carry_inbox=True,
        carry_tree=True,
        consumes=consumes,
        sends=(*_handed_on(outcomes, fresh), *sends),
        events=copies(seeded(kept, run, None, children=children, handed_on=handed_on), run.id),
        starts=tuple(starts),
    )


async def _goes_on(
    store: Store, run: Run, spawned: ChildSpawned, ending: Ending, timeout: float | None
) -> bool:
    """Whether a child is to be waited for: it runs on its own, was itself retried, or has completed. One that
    was cancelled with its parent may still complete, so its end is waited for: started once more, it would do
    again what it has done."""
    child = await store.find_one(spawned.child_run_id)
    if child is None:
        return False
    if not child.status.terminal:
        if spawned.parent_close or not await _is_cancelled(store, child.id):
            return True
        try:
            child = await ended(store, child.id, ending, timeout)
        except (TimeoutError, RunParked):
            raise Busy(
                f"run {run.id!r} is not retried: its child {child.id!r} is still being cancelled. "
                "Retry when it has ended"
            ) from None
    return child.status is Status.COMPLETED


async def _is_cancelled(store: Store, run_id: str) -> bool:
    """Whether a run was requested to cancel. The inbox is read first: the request moves from there to the history."""
    if any(item.kind == ItemKind.CANCEL for item in await _items(store, run_id)):
        return True
    history = await store.history(run_id)
    return any(event.type == EventType.CANCEL_REQUESTED for event in history)


def _resent(
    items: Sequence[Item], history: Sequence[Event], cut: Sequence[Event], fresh: Run
) -> tuple[tuple[int, ...], tuple[Send, ...]]:
    """What the new life does not take from the inbox, and what is sent to it: all that was consumed after
    the cut, and then what waits under the same names, so that each name keeps its order."""
    again = _consumed(history, cut)
    names = {(item.kind, item.name) for item in again}
    consumes = []
    for item in items:
        if item.kind in _OVER:
            consumes.append(item.number)
        elif (item.kind, item.name) in names:
            consumes.append(item.number)
            again.append(item)
    # Ids of their own: the receipts of the first ones stay, so that they are still taken once.
    sends = [
        Send(
            run_id=fresh.id,
            item=Item(
                kind=item.kind,
                name=item.name,
                id=f"again {number} in {fresh.uid}",
                data=item.data,
                sender=item.sender or (item.id if item.kind == ItemKind.UPDATE else ""),
            ),
        )
        for number, item in enumerate(again, 1)
    ]
    return tuple(consumes), tuple(sends)


def _handed_on(outcomes: Sequence[tuple[str, StepReport]], fresh: Run) -> list[Send]:
    """The outcomes of steps and maps after the cut, for the history of the new life."""
    return [
        Send(
            run_id=fresh.id,
            item=Item(
                kind=ItemKind.STEP,
                name=key,
                id=f"{key} {number} in {fresh.uid}",
                data=Raw(to_json(report)),
            ),
        )
        for number, (key, report) in enumerate(outcomes, 1)
    ]


def _consumed(history: Sequence[Event], cut: Sequence[Event]) -> list[Item]:
    """What was taken from the inbox after the cut, as it was. An update that was answered with an error
    is not done again. An answer says to what it was given: it counts if the new life asks the same."""
    questions = {
        event.step_name: event for event in history if event.type == EventType.HALT_STARTED
    }
    payloads = [(event.step_name, payload_of(event)) for event in cut]
    failed = {
        said.update_id
        for _, said in payloads
        if isinstance(said, UpdateCompleted) and said.error is not None
    }
    items: list[Item] = []
    for key, said in payloads:
        match said:
            case SignalReceived(signal_name=name, payload=value):
                items.append(Item(kind=ItemKind.SIGNAL, name=name, data=value))
            case UpdateAccepted(update_id=id, name=name, input=input) if id not in failed:
                items.append(Item(kind=ItemKind.UPDATE, name=name, id=id, data=input))
            case HaltResumed(value=value, id=id, by=by, at=at):
                asked = questions[key].data
                token = from_json(asked, HaltStarted, where="a question").id
                answer = Answer(id=id, ask=token, value=value, by=by, at=at, question=asked)
                items.append(Item(kind=ItemKind.RESUME, name=key, data=Raw(to_json(answer))))
    return items


async def _items(store: Store, run_id: str) -> list[Item]:
    found: list[Item] = []
    while True:
        page = await store.inbox(run_id, after=found[-1].number if found else 0, limit=PAGE)
        found += page
        if len(page) < PAGE:
            return found
