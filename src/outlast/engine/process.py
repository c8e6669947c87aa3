"""A step in a process of its own, so that it can be killed: on timeout, on cancel, on request.

The child is this Python with the step's module imported; input and result are JSON on its standard
streams. Nothing is pickled, and the name of the function comes from the running program alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec
from msgspec import Raw, Struct

from outlast.errors import OutlastError, WorkflowMisuse


class ProcessStepFailed(OutlastError):
    """What a step raised in its own process, as text."""


class Reply(Struct):
    """What the child tells its parent."""

    error: str | None = None
    output: Raw = Raw(b"null")


async def call_in_process(step: Any, input: Raw) -> Raw:
    """Call a step's function in a new process and give its recorded result."""
    function = step.function
    if "<locals>" in function.__qualname__ or function.__module__ == "__main__":
        raise WorkflowMisuse(
            f"step {step.name!r} runs in a process, so it must be importable: define it at the "
            "top of a module that is not the main program"
        )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "outlast.step_process",
        function.__module__,
        function.__qualname__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    try:
        text, _ = await process.communicate(bytes(input))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ProcessStepFailed(f"its process ended with code {process.returncode}")
    reply = msgspec.json.decode(text.rpartition(b"\n")[2], type=Reply)
    if reply.error is not None:
        raise ProcessStepFailed(reply.error)
    return Raw(bytes(reply.output))
