"""Updates: what others ask of a run and get an answer to.

A workflow says with `on_update` what it lets others change. A request waits in the inbox until
there is a handler for its name; accepting it removes it from the inbox and is an event, what the
handler answers is another, and whoever asked reads that. The handler is workflow code, on the run's
own loop beside the rest of it: it replays like the rest, and it may call steps::

    inbox: update ──▶ update.accepted ──▶ handler runs ──▶ update.completed: output or error

All that was accepted is answered before the run ends. Answers go along into the next lives of a run, as
many as `kept_answers` lets through: a caller reads its answer when it looks, which may be later.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.engine.definitions.signature import Signature
from outlast.engine.replay.error_text import told
from outlast.engine.replay.scope import Scope
from outlast.engine.replay.sync_workflow import run_in_thread
from outlast.errors import ContinueAsNew
from outlast.model.event import Event, EventType
from outlast.model.payloads import UpdateAccepted, UpdateCompleted, WorkflowStarted

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


CANCELLED = "cancelled: the run has ended"
ANSWERS_KEPT = 1000
"""How many answers go along into another life: the newest."""
ANSWER_BYTES_KEPT = 4 * 1024 * 1024
"""How large they may be together."""


def kept_answers(started: WorkflowStarted, history: Iterable[Event]) -> list[Raw]:
    """The answers that a life with this beginning and history hands on to the next one."""
    answers = [*started.answers]
    answers += [event.data for event in history if event.type == EventType.UPDATE_COMPLETED]
    size, kept = 0, []
    for answer in reversed(answers[-ANSWERS_KEPT:]):
        size += len(answer)
        if size > ANSWER_BYTES_KEPT:
            break
        kept.append(answer)
    return kept[::-1]


class Updates:
    """The handlers of one run, and those that are at work."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._handlers: dict[str, Callable[..., Any]] = {}
        self._counts: dict[str, int] = {}
        self._open: dict[str, tuple[asyncio.Task[None], UpdateAccepted]] = {}
        self._over = False

    def on(self, name: str, handler: Callable[..., Any]) -> None:
        """From now on `handler` answers updates called `name`."""
        self._handlers[name] = handler

    @property
    def names(self) -> tuple[str, ...]:
        """The updates that can be answered now."""
        return () if self._over else tuple(self._handlers)

    def next_key(self, name: str) -> str:
        """The key of the next update called `name`."""
        return f"update:{name}#{self._counts.get(name, 0) + 1}"

    def accept(self, key: str, update: UpdateAccepted) -> bool:
        """An update is recorded: its handler begins. False if there is none, or it was not its
        turn: then the code is not what it was."""
        handler = self._handlers.get(update.name)
        if handler is None or self._over or key != self.next_key(update.name):
            return False
        self._counts[update.name] = self._counts.get(update.name, 0) + 1
        answering = self._answer(key, handler, update)
        task = self._execution.loop.start_task(answering, Scope(f"{key}/"))
        self._open[key] = (task, update)
        task.add_done_callback(lambda _: self._open.pop(key, None))
        return True

    async def around(self, main: Coroutine[Any, Any, Any]) -> Any:
        """The workflow's own code, and then what is left of its updates, unless it has failed or was
        cancelled: then they are cancelled like all its branches. Its result as it is recorded: one
        that cannot be is a failure, too."""
        signature, codec = self._execution.workflow.signature, self._execution.codec
        try:
            try:
                value = await main
            except ContinueAsNew as anew:
                signature.encode_call(codec, anew.args_, anew.kwargs_)
                await self._finished()
                raise
            await self._finished()
            return signature.encode_result(codec, value)
        finally:
            self._over = True

    def give_up(self) -> None:
        """The run has failed, and handlers that have caught their cancellation still wait: they are
        answered for."""
        for key, (_, update) in self._open.items():
            ended = UpdateCompleted(update_id=update.update_id, error=CANCELLED)
            self._execution.state(key, ended)

    async def _finished(self) -> None:
        while self._open:
            await asyncio.wait([task for task, _ in self._open.values()])

    async def _answer(self, key: str, handler: Callable[..., Any], update: UpdateAccepted) -> None:
        execution, signature = self._execution, Signature(handler)
        output = error = None
        try:
            given = [signature.decode_first(execution.codec, update.input)]
            value = await self._call(handler, given if signature.takes_any else [])
            output = signature.encode_result(execution.codec, value)
        except ContinueAsNew:
            error = "continue_as_new() works in the workflow itself, not in an update's handler"
        except asyncio.CancelledError:
            error = CANCELLED
        except Exception as raised:  # noqa: BLE001 - it is the answer
            error = told(raised)
        done = UpdateCompleted(update_id=update.update_id, output=output, error=error)
        execution.say(key, done)

    async def _call(self, handler: Callable[..., Any], args: list[Any]) -> Any:
        if inspect.iscoroutinefunction(handler):
            return await handler(*args)
        if not self._execution.workflow.is_async:
            return await run_in_thread(self._execution, handler, args, {})
        return handler(*args)
