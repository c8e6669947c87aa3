"""BackgroundLoop: an event loop in a daemon thread that runs the coroutines of threads without a loop: `outlast.sync`.

It belongs to the process that started it: a forked child inherits the object and no thread, so a call there raises and
does not wait for ever.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from outlast.engine.runner.loop_thread import start_daemon
from outlast.errors import Closed, WorkflowMisuse

GRACE_S = 5.0
"""How long the tasks of a background loop get to end after they are cancelled."""

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines for other threads, from its creation until `stop`."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = new_loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = start_daemon(self._run, "outlast")

    @property
    def is_here(self) -> bool:
        """Whether this is the process that started it."""
        return self._pid == os.getpid()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. If the caller is interrupted, the coroutine is cancelled."""
        try:
            self._check()
            with self._lock:
                if self._stopped:
                    raise Closed("this app was closed by another thread")
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise Closed("this app was closed while this call waited for its answer") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Stop the loop; calls that still wait raise `Closed`."""
        if not self.is_here:
            return
        with self._lock:
            self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _check(self) -> None:
        if not self.is_here:
            raise Closed(
                "this app was opened before this process was forked, and its threads did not come "
                "along: open apps after the fork, not before (gunicorn: without preload_app, or in "
                "post_fork)"
            )
        if threading.current_thread() is self._thread:
            raise WorkflowMisuse(
                "an async step, or a callback, called an app of outlast.sync on whose loop it runs: "
                "it would wait for itself. Make the step a plain `def`, which runs in a thread"
            )

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            if left := asyncio.all_tasks(self._loop):
                for task in left:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(left, timeout=GRACE_S))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop for a process or thread that only outlast uses: uvloop's where it is installed
    (`pip install outlast[fast]`)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
