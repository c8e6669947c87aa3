"""SyncWorkflowThread: runs the function of a plain `def` workflow on a thread, in strict alternation with the run loop.

While the function runs, the loop's thread waits; while the function waits for an answer, the loop runs. So there is
no concurrency that could change a replay, and the thread can be evicted like a coroutine: by an exception where it
waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


class _Thread(threading.local):
    """State of the calling thread."""

    workflow: SyncWorkflowThread | None = None


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

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Run the workflow's function: the target of the thread."""
        _thread.workflow = self
        try:
            value = function(*args, **kwargs)
            self._outcome = lambda: value
        except BaseException as error:  # noqa: BLE001 - it is raised again on the loop's side
            self._outcome = _raiser(error)
        self._loop_may_go.release()

    def call(self, request: Coroutine[Any, Any, Any]) -> Any:
        """Have the loop await `request`, and return or raise its outcome."""
        if self.execution.refuses_calls:
            request.close()
            raise self.execution.eviction_error()
        self._request = request
        self._loop_may_go.release()
        self._thread_may_go.acquire()
        return self._reply()

    # -- on the loop's thread -----------------------------------------------------------------

    def run_thread(self) -> Coroutine[Any, Any, Any] | None:
        """Let the thread run until it requests something; None when it has ended."""
        self._loop_may_go.acquire()
        request, self._request = self._request, None
        return request

    def reply(self, answer: Callable[[], Any]) -> None:
        """Give the thread its answer: a function that returns or raises it."""
        self._reply = answer
        self._thread_may_go.release()

    def result(self) -> Any:
        """Return or raise the outcome of the thread's function."""
        assert self._outcome is not None
        return self._outcome()


async def run_in_thread(
    execution: Execution, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """The coroutine that represents a synchronous workflow on the run loop."""
    bridge = SyncWorkflowThread(execution)
    # The thread gets the context of the run's task, so that its keys are in the same scope.
    context = copy_context()
    thread = threading.Thread(
        target=context.run,
        args=(bridge.run, function, args, kwargs),
        name=f"outlast-{execution.run_id}",
        daemon=True,
    )
    thread.start()
    while (request := bridge.run_thread()) is not None:
        try:
            value = await request
        except GeneratorExit:
            _evict(bridge, thread)
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread
            bridge.reply(_raiser(error))
        else:
            bridge.reply(_returner(value))
    thread.join()
    return bridge.result()


def _evict(bridge: SyncWorkflowThread, thread: threading.Thread) -> None:
    bridge.reply(_raiser(bridge.execution.eviction_error()))
    while (request := bridge.run_thread()) is not None:
        request.close()
        bridge.reply(_raiser(bridge.execution.eviction_error()))
    thread.join()


def current_sync_workflow() -> SyncWorkflowThread | None:
    """The workflow that the calling thread runs, or None outside synchronous workflow code."""
    return _thread.workflow


def _raiser(error: BaseException) -> Callable[[], Any]:
    def reply() -> Any:
        raise error

    return reply


def _returner(value: Any) -> Callable[[], Any]:
    return lambda: value
