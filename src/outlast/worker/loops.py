"""The event loop of a process that is there for outlast alone: uvloop's where it is installed.

Whoever embeds an app has a loop of their own, and chooses that; nothing in outlast needs uvloop.
"""

from __future__ import annotations

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """A new loop, of the fastest kind at hand (`pip install outlast[fast]`)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
