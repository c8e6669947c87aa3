"""replay: checks the current code against histories that older code has written.

::

    def test_checkout_replays() -> None:
        replay(checkout, recorded_history)

    async def test_nothing_in_production_breaks() -> None:
        assert await assert_replays(copy_of_production, checkout, invoice) > 0

The workflow code is replayed as when an engine takes over a run. No step runs and nothing is
written. Code that asks for another operation than history has, or calls a step with other arguments, raises `Mismatch`, which shows both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from outlast.codecs import JsonCodec
from outlast.decorators import Workflow
from outlast.engine.replay.completion import end_of
from outlast.engine.replay.execution import ENDINGS, Execution
from outlast.errors import InvalidValue, Mismatch
from outlast.model.event import Event, EventType, type_of
from outlast.model.payloads import Payload
from outlast.model.query import RunQuery
from outlast.model.run import Run
from outlast.ports.codec import Codec
from outlast.ports.store import Store
from outlast.urls import resolve


@dataclass(frozen=True)
class ReplayResult:
    """The state of the code after its history. `ended` is how it ended, or None; `waits_for` has the
    keys of open operations; `asks` has operations beyond the history: none with the code that wrote
    it."""

    ended: Payload | None
    waits_for: list[str]
    asks: list[str]


def replay(
    workflow: Workflow[..., Any],
    history: Sequence[Event],
    *,
    uid: str = "",
    codec: Codec | None = None,
) -> ReplayResult:
    """Run a workflow's code on a recorded history; `Mismatch` if they disagree.

    `uid` is the run's; code that uses `outlast.random` or `outlast.uuid4` needs it. Code may ask for
    new operations after a history that has not ended. A history that has ended must end the same way.
    """
    if not history or history[0].type != EventType.WORKFLOW_STARTED:
        raise InvalidValue(
            "the history must begin with workflow.started: pass all events of the run"
        )
    run_id = history[0].run_id
    last = history[-1] if history[-1].type in ENDINGS else None
    execution = Execution(
        workflow.definition, run_id=run_id, uid=uid, codec=codec or JsonCodec(), is_strict=True
    )
    try:
        execution.replay(history if last is None else history[:-1])
        asks = [f"{event.type} {event.step_name!r}" for event in execution.pending.events]
        ended = end_of(execution)
        if last is not None:
            _check_end(last, ended, asks)
        return ReplayResult(ended=ended, waits_for=sorted(execution.open), asks=asks)
    finally:
        execution.evict()


async def assert_replays(
    store: Store | str,
    *workflows: Workflow[..., Any],
    run_ids: Collection[str] | None = None,
    codec: Codec | None = None,
) -> int:
    """Replay the runs of these workflows in a store, all or `run_ids`, and return their number. Raise
    the first `Mismatch`."""
    opened = resolve(store) if isinstance(store, str) else store
    by_name = {workflow.name: workflow for workflow in workflows}
    if isinstance(store, str):
        await opened.open()
    try:
        runs = await _runs(opened, by_name, run_ids)
        for run in runs:
            history = await opened.history(run.id)
            replay(by_name[run.workflow], history, uid=run.uid, codec=codec)
        return len(runs)
    finally:
        if isinstance(store, str):
            await opened.close()


async def _runs(store: Store, names: Collection[str], run_ids: Collection[str] | None) -> list[Run]:
    if run_ids is None:
        return [run for name in names async for run in store.find_all(RunQuery(workflow=name))]
    runs = [await store.get(run_id) for run_id in run_ids]
    for run in runs:
        if run.workflow not in names:
            raise InvalidValue(f"run {run.id!r} is of workflow {run.workflow!r}: pass that one")
    return runs


def _check_end(last: Event, ended: Payload | None, asks: list[str]) -> None:
    if ended is not None and not asks and type_of(ended) == last.type:
        return
    if last.type == EventType.WORKFLOW_CANCELLED and ended is None:
        return  # terminated without its code
    does = [*asks, *([] if ended is None else [f"{type_of(ended)} {ended!r}"])]
    raise Mismatch(
        last.run_id,
        recorded=f"{last.sequence} {last.type}",
        asked=", ".join(does) or "nothing more: it waits",
    )
