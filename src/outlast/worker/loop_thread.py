"""An event loop in a thread of its own, for programs that have none.

It belongs to the process that has begun it: a forked child inherits the object and no thread, so that
whoever waited for an answer there would wait for ever.

The event loop of a process that is there for outlast alone: uvloop's where it is installed.

Whoever embeds an app has a loop of their own, and chooses that; nothing in outlast needs uvloop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from outlast.errors import Closed, WorkflowMisuse

T = TypeVar("T")

GRACE_SECONDS = 5.0
"""How long to wait at the end for those who are told to stop."""


class BackgroundLoop:
    """Runs coroutines of other threads, from its making until `stop`."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = new_loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._live, name="outlast", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this is the process that has begun it."""
        return self._pid == os.getpid()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives. Who is interrupted while waiting does not leave it behind."""
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
        """End the loop; who still waits for an answer gets `Closed`."""
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

    def _live(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            if left := asyncio.all_tasks(self._loop):
                for task in left:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(left, timeout=GRACE_SECONDS))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def new_loop() -> asyncio.AbstractEventLoop:
    """A new loop, of the fastest kind at hand (`pip install outlast[fast]`)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
