"""Threads for plain steps. They are daemons: a step that never ends must not keep its process from ending.

Python joins the threads of `ThreadPoolExecutor` when the interpreter ends, whatever they do, so that a program
with one runaway step would never exit. A daemon thread ends with its process; its run has been handed back then.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

IDLE_SECONDS = 10.0
"""How long a thread that has nothing to do waits for something."""

T = TypeVar("T")
_Call = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """Runs each call at once, in a thread that is idle or a new one, up to `most`; more calls wait."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._idle = self._waiting = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call in a thread."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting += 1
            begin = self._waiting > self._idle and self._threads < self._most
            self._threads += begin
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        if begin:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                # Not the caller's: what a thread does belongs to the call that it is given.
                contextvars.Context().run(thread.start)
            except BaseException as error:
                with self._lock:
                    self._threads -= 1
                # No room for another thread: the call waits for one that is there.
                if not self._threads or not isinstance(error, RuntimeError):
                    raise
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                call = self._calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    self._idle -= 1
                    if self._waiting <= self._idle:
                        self._threads -= 1
                        return
                continue
            with self._lock:
                self._idle -= 1
                self._waiting -= 1
            _run(*call)
            del call  # a thread that waits holds nothing


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is the outcome of the call
        future.set_exception(error)
    else:
        future.set_result(result)
