"""The child of a step that runs in a process of its own: ``python -m outlast.step_process``."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from outlast.codecs import JsonCodec
from outlast.engine.definitions.raised import pack
from outlast.engine.definitions.retry import name_of
from outlast.engine.replay.error_text import details_of, text_of
from outlast.engine.steps.step_executor import StepContext, step_context
from outlast.engine.steps.subprocess import MAIN, Order, Reply, loading
from outlast.model.json import from_json, to_json


def main(module: str, name: str, *, is_main: bool) -> None:
    """Read the order, call the function, write the result."""
    tell = _line_to_parent()
    codec = JsonCodec()
    try:
        order = from_json(sys.stdin.buffer.readline(), Order, where="the order")
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if is_main:
            loading.append(module)
        function: Any = _load(module)
        loading.clear()
        for part in name.split("."):
            function = getattr(function, part)
        definition = getattr(function, "definition", function)
        step_context.set(
            StepContext(
                run_id=order.run_id,
                uid=order.uid,
                key=order.key,
                attempt=order.attempt,
                progress=order.progress,
                report=lambda details: tell(Reply(report=details)),
                codec=codec,
            )
        )
        args, kwargs = definition.signature.decode_call(codec, order.input)
        value = definition.function(*args, **kwargs)
        if definition.is_async:
            value = asyncio.run(value)
        tell(Reply(output=definition.signature.encode_result(codec, value)))
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - the parent records it
        kinds = [name_of(kind) for kind in type(error).__mro__]
        raised = pack(codec, error)
        tell(Reply(error=text_of(error), kinds=kinds, details=details_of(error), raised=raised))


def _load(module: str) -> ModuleType:
    """A module by its name, or the script that is the parent's main program, by its path."""
    if not Path(module).is_absolute():
        return importlib.import_module(module)
    spec = importlib.util.spec_from_file_location(MAIN, module)
    assert spec is not None
    assert spec.loader is not None
    script = sys.modules[MAIN] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def _end_with_parent() -> None:
    """Exit when the parent is gone: another process may have started the step again."""
    while os.read(0, 1):  # not by sys.stdin: who ends while that is being read is aborted
        pass
    with suppress(ProcessLookupError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _line_to_parent() -> Callable[[Reply], None]:
    """How to tell the parent something. What the step prints must not get in between."""
    parent = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def tell(reply: Reply) -> None:
        parent.write(to_json(reply) + b"\n")
        parent.flush()

    return tell


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], is_main=sys.argv[3] == "__main__")
