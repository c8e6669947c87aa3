"""The bridge to a synchronous workflow: its function runs on a thread of its own, in strict
alternation with the run's loop.

While the function runs, the loop's thread waits; while the function waits for an answer, the loop
goes on. So there is no concurrency to make a replay different, and what holds for a coroutine
holds for the thread: it can be thrown out of memory, by an exception where it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


class _Thread(threading.local):
    """What is known of the calling thread."""

    bridge: SyncWorkflowThread | None = None


_thread = _Thread()


class SyncWorkflowThread:
    """Hands control back and forth between the run's loop and one thread."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self._request: Coroutine[Any, Any, Any] | None = None
        self._reply: Callable[[], Any] = lambda: None
        self._loop_may_go = threading.Semaphore(0)
        self._thread_may_go = threading.Semaphore(0)
        self._outcome: Callable[[], Any] | None = None

    # -- on the workflow's thread -------------------------------------------------------------

    def body(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """What the thread does."""
        _thread.bridge = self
        try:
            value = function(*args, **kwargs)
            self._outcome = lambda: value
        except BaseException as error:  # noqa: BLE001 - it is raised again on the loop's side
            self._outcome = _raiser(error)
        self._loop_may_go.release()

    def call(self, request: Coroutine[Any, Any, Any]) -> Any:
        """Have the loop await `request`, and wait for what it gives."""
        if self.execution.is_thrown_out:
            request.close()
            raise self.execution.eviction()
        self._request = request
        self._loop_may_go.release()
        self._thread_may_go.acquire()
        return self._reply()

    # -- on the loop's thread -----------------------------------------------------------------

    def run_thread(self) -> Coroutine[Any, Any, Any] | None:
        """Let the thread run until it wants something; None when it has ended."""
        self._loop_may_go.acquire()
        request, self._request = self._request, None
        return request

    def reply(self, answer: Callable[[], Any]) -> None:
        """Give the thread its answer: a function that returns or raises it."""
        self._reply = answer
        self._thread_may_go.release()

    def result(self) -> Any:
        """What the thread's function returned or raised."""
        assert self._outcome is not None
        return self._outcome()


async def run_in_thread(
    execution: Execution, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """The coroutine that stands for a synchronous workflow on the run's loop."""
    bridge = SyncWorkflowThread(execution)
    # The thread sees the context of the run's task, so that its keys are in the same scope.
    context = copy_context()
    thread = threading.Thread(
        target=context.run,
        args=(bridge.body, function, args, kwargs),
        name=f"outlast-{execution.run_id}",
        daemon=True,
    )
    thread.start()
    while (request := bridge.run_thread()) is not None:
        try:
            value = await request
        except GeneratorExit:
            _throw_out(bridge, thread)
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread
            bridge.reply(_raiser(error))
        else:
            bridge.reply(_returner(value))
    thread.join()
    return bridge.result()


def _throw_out(bridge: SyncWorkflowThread, thread: threading.Thread) -> None:
    bridge.reply(_raiser(bridge.execution.eviction()))
    while (request := bridge.run_thread()) is not None:
        request.close()
        bridge.reply(_raiser(bridge.execution.eviction()))
    thread.join()


def current_sync_workflow() -> SyncWorkflowThread | None:
    """The bridge of the thread that is calling, or None outside synchronous workflow code."""
    return _thread.bridge


def _raiser(error: BaseException) -> Callable[[], Any]:
    def reply() -> Any:
        raise error

    return reply


def _returner(value: Any) -> Callable[[], Any]:
    return lambda: value
