"""Beginning: how a run begins under an id that may be taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec import Raw

from outlast.api import Workflow
from outlast.client.client import Client
from outlast.client.handle import RunHandle
from outlast.client.moves import unless_moved
from outlast.engine.definition import WorkflowDefinition
from outlast.engine.execution import current_execution
from outlast.errors import InvalidValue, NotFound, RunClosed, RunExists, WorkflowMisuse
from outlast.model.commit import Creation
from outlast.model.event_data import payload_of
from outlast.model.ids import check_id, new_id
from outlast.model.payloads import WorkflowStarted
from outlast.model.run import Run

Begin = Callable[[str, Creation], Awaitable[object]]
"""Writes the beginning of a run, given its id; `RunExists` if that is taken."""


class Beginning(Client):
    """The id is the idempotency key."""

    async def _begin(
        self,
        definition: WorkflowDefinition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        begin: Begin,
        *,
        id: str | None,
        on_conflict: str,
    ) -> RunHandle[Any]:
        """Begin a run; when its id is taken, do what `on_conflict` says."""
        run_id = new_id() if id is None else check_id(id)
        creation = Creation.REPLACE if on_conflict == "replace" else Creation.NEW
        if creation is Creation.REPLACE:
            await unless_moved(self._store, run_id)  # what goes on elsewhere cannot be ended here
            # Its children are not the new run's: they are asked to stop, and its parent is told.
            with suppress(NotFound, RunClosed):
                await self.terminate(run_id, "replaced by a new start")
        try:
            await begin(run_id, creation)
        except RunExists:
            if on_conflict == "fail":
                raise
            await self._same_or_raise(definition, args, kwargs, run_id)
        return RunHandle(self, run_id)

    async def _same_or_raise(
        self,
        definition: WorkflowDefinition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run_id: str,
    ) -> None:
        run = await self.get(run_id)
        if run.workflow == definition.name:
            # Compared as values, not as text: a set has no order of its own.
            _, *given = definition.signature.encode_call(self._codec, args, kwargs)
            for input in await self._inputs(run):
                if given == [*definition.signature.decode_call(self._codec, input)]:
                    return
        raise RunExists(run_id, run.uid)

    async def _inputs(self, run: Run) -> list[Raw]:
        """What a run was started with: its input, and if it has continued as new, the first."""
        inputs = [] if run.input is None else [run.input]
        for event in await self._store.history(run.id, limit=1):
            started = payload_of(event)
            if isinstance(started, WorkflowStarted) and started.origin is not None:
                inputs.append(started.origin)
        return inputs


def check_start(workflow: object, on_conflict: str) -> None:
    """Refuse what cannot be begun, or not from here."""
    if on_conflict not in ("attach", "fail", "replace"):
        raise InvalidValue(f"on_conflict={on_conflict!r}: use attach, fail or replace")
    if current_execution() is not None:
        raise WorkflowMisuse(
            "workflow code called app.start(): use `await outlast.child(…)`, which is recorded"
        )
    if not isinstance(workflow, Workflow):
        raise WorkflowMisuse(
            f"{workflow!r} is not a workflow: decorate the function with @outlast.workflow"
        )
