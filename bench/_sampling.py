"""Where the time goes: the stack of the main thread is looked at a thousand times a second, by the clock.

A look happens between two instructions of Python. Each counts for the time since the last one, so that
a long call of C, which nothing can look into, counts in full for the function that made it. While the
main thread waits for another one that is at work, that one's stack counts.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

INTERVAL = 0.001
LAYERS = {  # the first that a file's path, from `outlast/` or `bench/` on, begins with
    "bench/_our_steps.py": "workflow and steps",
    "bench/_profiled.py:commit": "COMMIT and its sync",
    "bench/_profiled.py:statement": "SQLite statements",
    "outlast/call.py": "api and client",
    "outlast/context.py": "api and client",
    "outlast/decorators.py": "api and client",
    "outlast/app.py": "api and client",
    "outlast/client": "api and client",
    "outlast/codecs": "codec",
    "outlast/engine/replay/execution.py": "workflow loop",
    "outlast/engine/replay/event_loop.py": "workflow loop",
    "outlast/engine/operations": "workflow loop",
    "outlast/engine/replay/eviction.py": "workflow loop",
    "outlast/engine": "engine",
    "outlast/model": "model and its checks",
    "outlast/ports": "model and its checks",
    "outlast/stores": "store, Python",
    "asyncio": "asyncio",
}
WAITING = "waiting|waiting"
Stacks = dict[tuple[str, ...], float]
"""Seconds, by functions from the outermost to the innermost; each is `layer|name`."""

_names: dict[CodeType, str] = {}


@contextmanager
def sampled() -> Iterator[Stacks]:
    """The stacks of this thread, the main one, from here to the end."""
    stacks: Stacks = defaultdict(float)
    last = time.perf_counter()

    def look(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.perf_counter()
        stack = stack_of(frame)
        if stack[-1:] == (WAITING,):
            stack = at_work(frame) or stack
        stacks[stack] += now - last
        last = now

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
    try:
        yield stacks
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stack_of(frame: FrameType | None) -> tuple[str, ...]:
    """The functions of the layers that are on a stack; what they call elsewhere counts for them."""
    names: list[str] = []
    while frame is not None:
        code = frame.f_code
        name = _names.get(code)
        if name is None:
            name = _names[code] = name_of(code.co_filename, code.co_qualname)
        if name and (not names or names[-1] != name):
            names.append(name)
        frame = frame.f_back
    names.reverse()
    return tuple(names)


def at_work(main: FrameType | None) -> tuple[str, ...]:
    """The stack of another thread that does something; one that waits for work has a single function."""
    for frame in sys._current_frames().values():  # noqa: SLF001 - the only way to them
        if frame is not main:
            stack = stack_of(frame)
            if len(stack) > 1 and stack[-1] != WAITING:
                return stack
    return ()


def name_of(filename: str, function: str) -> str:
    """`layer|name` of a function; nothing for one of no layer."""
    parts = Path(filename).parts
    if parts[-1:] == ("selectors.py",):
        return WAITING
    for top in ("outlast", "bench", "asyncio"):
        if top in parts:
            begin = len(parts) - 1 - parts[::-1].index(top)
            path = "/".join(parts[begin:])
            break
    else:
        return ""
    for prefix, layer in LAYERS.items():
        if f"{path}:{function.rpartition('.')[2]}".startswith(prefix):
            if path.startswith(("asyncio", "bench/_profiled.py")):
                return f"{layer}|{layer}"
            short = path.removeprefix("outlast/").removesuffix(".py").replace("/", ".")
            return f"{layer}|{short}: {function.replace('.<locals>', '')}"
    return ""


def shares(stacks: Stacks) -> dict[str, float]:
    """Percent of the time by layer, the most first. What belongs to none is `elsewhere`."""
    by_layer: dict[str, float] = defaultdict(float)
    for stack, seconds in stacks.items():
        by_layer[stack[-1].partition("|")[0] if stack else "elsewhere"] += seconds
    total = sum(by_layer.values()) or 1.0
    most = sorted(by_layer.items(), key=lambda one: -one[1])
    return {layer: seconds / total * 100 for layer, seconds in most}
