"""A step in a process of its own, so that it can be killed: on timeout, on cancel, on request.

The child is this Python with the step's module imported, or the file that is the main program, under a
name that is not ``__main__``, as multiprocessing does. What it is to do comes as JSON on its standard
input; reports and the result go back as lines of JSON, and what the step prints goes to standard error.
Nothing is pickled, and the name of the function comes from the running program
alone. Values travel in plain JSON, whatever codec the store has: they stay on this machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Raw, Struct

from outlast.engine.definitions.definition import module_of
from outlast.errors import OutlastError
from outlast.model.json import from_json, to_json

LONGEST_LINE = 2**30
MAIN = "__mp_main__"
"""What the main program is called in the child: the name that multiprocessing gives it."""

loading: list[str] = []
"""In the child: the main program while it is loaded, which must not begin anew there."""


class ProcessStepFailed(OutlastError):
    """What a step raised in its own process, as text, with the names of its classes: `Retry` looks
    at those."""

    def __init__(self, text: str, kinds: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.kinds = tuple(kinds)


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the child is to do."""

    run_id: str
    uid: str
    key: str
    attempt: int
    input: Raw
    progress: Raw | None = None


class Reply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the child tells its parent: a report, and at last the result or an error."""

    error: str | None = None
    kinds: list[str] = []
    output: Raw | None = None
    report: Raw | None = None


async def call_in_process(step: Any, order: Order, report: Callable[[Raw], None]) -> Raw:
    """Call a step's function in a new process and give its result in plain JSON."""
    function = step.function
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "outlast.step_process",
        module_of(function) or "",
        function.__qualname__,
        function.__module__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST_LINE,
        start_new_session=True,  # so that what the step has started can be killed with it
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    try:
        output = await _converse(process, order, report)
        await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if output is None:
        raise ProcessStepFailed(f"its process ended with code {process.returncode}")
    return output


async def _converse(
    process: asyncio.subprocess.Process, order: Order, report: Callable[[Raw], None]
) -> Raw | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # It stays open: when it ends, so have we, and the child ends too.
        process.stdin.write(to_json(order) + b"\n")
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it died before it had read all: its exit code says how
    async for line in process.stdout:
        reply = from_json(line, Reply, where="what a step's process said")
        if reply.error is not None:
            raise ProcessStepFailed(reply.error, reply.kinds)
        if reply.output is not None:
            return Raw(bytes(reply.output))
        if reply.report is not None:
            report(Raw(bytes(reply.report)))
    return None
