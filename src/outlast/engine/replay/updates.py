"""Updates: messages to a run that get an answer.

A workflow declares handlers with `on_update`. A request waits in the inbox until there is a handler for its name.
Accepting it removes it from the inbox and is an event; the handler's answer is another event, which the caller
reads. The handler is workflow code on the run's loop: it is replayed, and it may call steps::

    inbox: update ──▶ update.accepted ──▶ handler runs ──▶ update.completed: output or error

Every accepted update is answered before the run ends. Later lives of the run inherit the latest answers
(`answers_to_keep`), because a caller may read its answer later.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.engine.definitions.signature import Signature
from outlast.engine.replay.error_text import at_error, describe
from outlast.engine.replay.event_loop import Scope
from outlast.engine.replay.sync_workflow import run_in_thread
from outlast.errors import ContinueAsNew
from outlast.model.event import Event, EventType
from outlast.model.payloads import UpdateAccepted, UpdateCompleted, WorkflowStarted

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


CANCELLED = "cancelled: the run has ended"
MAX_KEPT_ANSWERS = 1000
"""How many answers the next life inherits: the latest."""
MAX_KEPT_BYTES = 4 * 1024 * 1024
"""How large these answers may be together."""


def answers_to_keep(started: WorkflowStarted, history: Iterable[Event]) -> list[Raw]:
    """The answers that a life with this start and history hands on to the next one."""
    answers = [*started.answers]
    answers += [event.data for event in history if event.type == EventType.UPDATE_COMPLETED]
    size, kept = 0, []
    for answer in reversed(answers[-MAX_KEPT_ANSWERS:]):
        size += len(answer)
        if size > MAX_KEPT_BYTES:
            break
        kept.append(answer)
    return kept[::-1]


class Updates:
    """The update handlers of one run, and the updates that are being answered."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._handlers: dict[str, Callable[..., Any]] = {}
        self._types: dict[str, tuple[Any, Any]] = {}
        self._counts: dict[str, int] = {}
        self._open: dict[str, tuple[asyncio.Task[None], UpdateAccepted]] = {}
        self._is_closed = False

    def on(
        self, name: str, handler: Callable[..., Any], types: tuple[Any, Any] | None = None
    ) -> None:
        """Answer updates called `name` with `handler` from now on. `types` are those of its argument and answer, if
        the update is declared; otherwise the annotations of the handler say them."""
        self._handlers[name] = handler
        self._types.pop(name, None)
        if types is not None:
            self._types[name] = types

    @property
    def names(self) -> tuple[str, ...]:
        """The updates that can be answered now."""
        return () if self._is_closed else tuple(self._handlers)

    def next_key(self, name: str) -> str:
        """The key of the next update called `name`."""
        return f"update:{name}#{self._counts.get(name, 0) + 1}"

    def accept(self, key: str, update: UpdateAccepted) -> bool:
        """Start the handler of a recorded update. False if there is no handler, or the key is not the next one:
        then the code does not match its history."""
        handler = self._handlers.get(update.name)
        if handler is None or self._is_closed or key != self.next_key(update.name):
            return False
        self._counts[update.name] = self._counts.get(update.name, 0) + 1
        answering = self._answer(key, handler, update)
        task = self._execution.loop.start_task(answering, Scope(f"{key}/"))
        self._open[key] = (task, update)
        task.add_done_callback(lambda _: self._open.pop(key, None))
        return True

    async def finish(self) -> None:
        """Return when every accepted update is answered."""
        while self._open:
            await asyncio.wait([task for task, _ in self._open.values()])

    def close(self) -> None:
        """Accept no more: the workflow's code has ended."""
        self._is_closed = True

    def cancel_open(self) -> None:
        """Answer the updates whose handlers caught their cancellation and still wait in a failed run."""
        for key, (_, update) in self._open.items():
            ended = UpdateCompleted(update_id=update.update_id, error=CANCELLED)
            self._execution.record_unchecked(key, ended)

    async def _answer(self, key: str, handler: Callable[..., Any], update: UpdateAccepted) -> None:
        execution, signature = self._execution, Signature(handler)
        output = error = None
        try:
            codec, types = execution.codec, self._types.get(update.name)
            if types is None:
                given = signature.decode_first(codec, update.input)
            else:
                given = codec.decode(update.input, types[0], where=f"update {update.name!r}")
            value = await self._call(handler, [given] if signature.takes_any else [])
            if types is None:
                output = signature.encode_answer(codec, value)
            else:
                output = codec.encode(value, types[1], where=f"answer to update {update.name!r}")
        except ContinueAsNew:
            error = "continue_as_new() works in the workflow itself, not in an update's handler"
        except asyncio.CancelledError:
            error = CANCELLED
        except Exception as raised:  # noqa: BLE001 - it is the answer
            error = f"{describe(raised)}{at_error(raised)}"
        done = UpdateCompleted(update_id=update.update_id, output=output, error=error)
        execution.record(key, done)

    async def _call(self, handler: Callable[..., Any], args: list[Any]) -> Any:
        if inspect.iscoroutinefunction(handler):
            return await handler(*args)
        if not self._execution.workflow.is_async:
            return await run_in_thread(self._execution, handler, args, {})
        return handler(*args)
