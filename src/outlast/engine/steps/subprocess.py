"""Executes a step in a process of its own, which can be killed: on timeout, on cancellation, on request.

The child is the same Python with the step's module imported, or the main program's file under a name that is not
``__main__``, as multiprocessing does. It reads its order as JSON from standard input and writes reports and the result
as lines of JSON; what the step prints goes to standard error. Nothing is pickled, and the name of the function comes
only from the running program. Values are plain JSON, whatever codec the store has: they stay on this machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Raw, Struct

from outlast.engine.definitions.definition import module_of
from outlast.engine.definitions.raised import read
from outlast.engine.replay.error_text import with_place
from outlast.errors import OutlastError
from outlast.model.json import from_json, to_json
from outlast.model.payloads import ErrorDetails
from outlast.ports.codec import Codec

MAX_LINE_BYTES = 2**30
MAIN = "__mp_main__"
"""The module name of the main program in the child: the same as multiprocessing's."""

loading: list[str] = []
"""In the child: the main program while it is imported. It must not run there."""


class ProcessStepFailed(OutlastError):
    """What a step raised in its process, as text, with the names of the error's classes for `Retry` and `raises`, its
    chain of causes as data, and its args and attributes."""

    def __init__(
        self,
        text: str,
        kinds: Sequence[str] = (),
        details: Sequence[ErrorDetails] = (),
        raised: Sequence[Raw] = (),
    ) -> None:
        super().__init__(text)
        self.kinds = tuple(kinds)
        self.details = tuple(details)
        self.raised = raised
        self.raised_args: tuple[Any, ...] = (text,)
        self.raised_state: dict[str, Any] = {}

    def decode(self, codec: Codec) -> None:
        """Decode the args and attributes."""
        found = read(codec, self.raised)
        if found is not None:
            self.raised_args, self.raised_state = found


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The call that the child executes."""

    run_id: str
    uid: str
    key: str
    attempt: int
    input: Raw
    progress: Raw | None = None


class Reply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line from the child: a report and, as the last one, the result or an error."""

    error: str | None = None
    kinds: list[str] = []
    details: list[ErrorDetails] = []
    raised: list[Raw] = []
    output: Raw | None = None
    report: Raw | None = None


async def call_in_process(
    step: Any, order: Order, report: Callable[[Raw], None], inherited_files: Collection[int] = ()
) -> Raw:
    """Call a step's function in a new process; returns its result in plain JSON."""
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
        limit=MAX_LINE_BYTES,
        pass_fds=tuple(inherited_files),
        start_new_session=True,  # so that processes which the step starts are killed with it
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
        # It stays open: the child ends when it is closed, as when this process ends.
        process.stdin.write(to_json(order) + b"\n")
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended before it had read all: its exit code is reported
    async for line in process.stdout:
        reply = from_json(line, Reply, where="what a step's process said")
        if reply.error is not None:
            raised = [Raw(bytes(data)) for data in reply.raised]
            error = ProcessStepFailed(reply.error, reply.kinds, reply.details, raised)
            raise with_place(error, reply.details)
        if reply.output is not None:
            return Raw(bytes(reply.output))
        if reply.report is not None:
            report(Raw(bytes(reply.report)))
    return None
