"""LoopThread: one coroutine on an event loop in a daemon thread of its own, beside the program's event loop. It
continues while that loop is blocked: the renewal of leases."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

log = logging.getLogger("outlast.engine")


class LoopThread:
    """Runs `main` from `start` to `stop`. It shares only `call` with the loop that started it. If `main` ends without
    `stop`, that is logged, and `on_end` is called in that loop."""

    def __init__(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        *,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._main = main
        self._name = name
        self._on_end = on_end
        self._is_stopping = False
        self._over: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Start, for the running loop. Raises `RuntimeError` if the system has no thread left."""
        self._home = asyncio.get_running_loop()
        self._over = self._home.create_future()
        self._is_stopping = False
        self._loop = asyncio.new_event_loop()
        try:
            start_daemon(self._run, self._name)
        except RuntimeError:
            self._loop.close()
            raise

    async def stop(self) -> None:
        """Cancel `main`, and wait until the thread has ended. Stopping twice is fine."""
        if self._over is not None:
            self._is_stopping = True
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._cancel)
            await asyncio.shield(self._over)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function in the loop that started this thread."""
        with suppress(RuntimeError):  # that loop is closed
            self._home.call_soon_threadsafe(function, *args)

    def _cancel(self) -> None:
        self._task.cancel()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        error: BaseException | None = None
        self._task = loop.create_task(self._main())
        try:
            loop.run_until_complete(asyncio.wait([self._task]))
            loop.run_until_complete(loop.shutdown_default_executor())
            error = None if self._task.cancelled() else self._task.exception()
        except BaseException as unforeseen:  # noqa: BLE001 - it would be lost with the thread
            error = unforeseen
        finally:
            if error is not None or not self._is_stopping:
                log.error("%s has ended: %r", self._name, error or "it was not stopped")
            asyncio.set_event_loop(None)
            loop.close()
            if not self._is_stopping:
                self.call(self._on_end)
            self.call(self._end)

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


def start_daemon(target: Callable[[], None], name: str) -> threading.Thread:
    """A started thread. A program that ends without closing does not wait for it."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
