"""LoopThread: a coroutine on a thread with an event loop of its own, so that it goes on while the
program's loop is blocked."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

log = logging.getLogger("outlast.engine")


class LoopThread:
    """Runs `live` from `start` to `stop`. It shares nothing with the loop that has started it but
    `call`. If it ends unasked, that is logged, and `ended` is called there."""

    def __init__(
        self,
        live: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        *,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        self._ended = ended
        self._is_asked = False
        self._live = live
        self._name = name
        self._over: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Begin; for the loop that is running. `RuntimeError` if there is no room for a thread."""
        self._home = asyncio.get_running_loop()
        self._over = self._home.create_future()
        self._is_asked = False
        self._loop = asyncio.new_event_loop()
        try:
            # A daemon: a program that ends without closing must not hang here.
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:
            self._loop.close()
            raise

    async def stop(self) -> None:
        """End it, and wait until it has. Stopping twice is fine."""
        if self._over is not None:
            self._is_asked = True
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._cancel)
            await asyncio.shield(self._over)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Have a function called in the loop that has started this, as soon as that comes to it."""
        with suppress(RuntimeError):  # it is closed: nobody is left to be told
            self._home.call_soon_threadsafe(function, *args)

    def _cancel(self) -> None:
        self._task.cancel()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        error: BaseException | None = None
        self._task = loop.create_task(self._live())
        try:
            loop.run_until_complete(asyncio.wait([self._task]))
            loop.run_until_complete(loop.shutdown_default_executor())
            error = None if self._task.cancelled() else self._task.exception()
        except BaseException as unforeseen:  # noqa: BLE001 - nobody else would hear of it
            error = unforeseen
        finally:
            if error is not None or not self._is_asked:
                log.error("%s has ended: %r", self._name, error or "nobody asked it to")
            asyncio.set_event_loop(None)
            loop.close()
            if not self._is_asked:
                self.call(self._ended)
            self.call(self._end)

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
