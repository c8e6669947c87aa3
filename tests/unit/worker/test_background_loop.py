"""A loop in a thread of its own: who still waits for it when it ends is told."""

from __future__ import annotations

import asyncio
import threading

from outlast.errors import Closed
from outlast.worker.background_loop import BackgroundLoop


def test_what_is_left_when_it_ends_is_cancelled_and_who_waits_is_told() -> None:
    """Calls that wait for something else than the app's own end: they would wait for ever, and their
    ``finally`` would never run."""
    background = BackgroundLoop()
    begun, told = threading.Event(), list[str]()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cleaned up")

    def wait() -> None:
        try:
            background.call(waits())
        except Closed as error:
            told.append(str(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    begun.wait()
    background.stop()
    thread.join(20)
    assert told == ["cleaned up", "this app was closed while this call waited for its answer"]
