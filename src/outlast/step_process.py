"""The child of a step that runs in a process of its own: ``python -m outlast.step_process``."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

import msgspec
from msgspec import Raw

from outlast.codecs import JsonCodec
from outlast.engine.process import Reply


def main(module: str, name: str) -> None:
    """Read the input, call the function, write the result."""
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    definition = getattr(function, "definition", function)
    codec = JsonCodec()
    reply = Reply()
    try:
        args, kwargs = definition.signature.decode_call(codec, Raw(sys.stdin.buffer.read()))
        value = definition.function(*args, **kwargs)
        if definition.is_async:
            value = asyncio.run(value)
        reply.output = definition.signature.encode_result(codec, value)
    except Exception as error:  # noqa: BLE001 - it is told to the parent
        reply.error = f"{type(error).__name__}: {error}"
    sys.stdout.write("\n" + msgspec.json.encode(reply).decode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
