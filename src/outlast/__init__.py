"""outlast: workflows that outlast the process that runs them.

Each name is loaded when it is first used, so that a program pays at its start for what it uses: a web process
with a `Client` loads no worker code, and an app on SQLite loads no other store. docs/reference/public-names.md
lists the modules that users may import.
"""

import importlib
import sys
import warnings
from typing import TYPE_CHECKING, Any

# An extension that is not made for free threading turns the global interpreter lock on, see below.
import msgspec  # noqa: F401 # pyright: ignore[reportUnusedImport]

from outlast import errors
from outlast._version import __version__ as __version__

if TYPE_CHECKING:
    from outlast import sync
    from outlast.app import App
    from outlast.call import Call
    from outlast.client import Client, RunHandle, RunView, TransactionClient, Unreadable
    from outlast.context import (
        ask,
        branch,
        child,
        connection,
        continue_as_new,
        get_logger,
        halt,
        heartbeat,
        last_heartbeat,
        loop,
        map,
        now,
        on_update,
        patched,
        publish,
        random,
        scope,
        set_attributes,
        sleep,
        sleep_until,
        step_info,
        uuid4,
        wait_for_signal,
    )
    from outlast.decorators import Step, Workflow, step, workflow
    from outlast.engine.definitions.retry import Retry, RetryAfter
    from outlast.engine.operations.scopes import Stop
    from outlast.messages import Query, Signal, Update
    from outlast.model.asks import Ask
    from outlast.model.event import Event
    from outlast.model.queue_policy import QueueOptions, QueuePolicy, Rate
    from outlast.model.run import Run, Status
    from outlast.schedules import Schedule
    from outlast.transfer import move

__all__ = [
    "App",
    "Ask",
    "Call",
    "Client",
    "Event",
    "Query",
    "QueueOptions",
    "QueuePolicy",
    "Rate",
    "Retry",
    "RetryAfter",
    "Run",
    "RunHandle",
    "RunView",
    "Schedule",
    "Signal",
    "Status",
    "Step",
    "Stop",
    "TransactionClient",
    "Unreadable",
    "Update",
    "Workflow",
    "ask",
    "branch",
    "child",
    "connection",
    "continue_as_new",
    "errors",
    "get_logger",
    "halt",
    "heartbeat",
    "last_heartbeat",
    "loop",
    "map",
    "move",
    "now",
    "on_update",
    "patched",
    "publish",
    "random",
    "scope",
    "set_attributes",
    "sleep",
    "sleep_until",
    "step",
    "step_info",
    "sync",
    "uuid4",
    "wait_for_signal",
    "workflow",
]

_MODULES = {
    "outlast.app": "App",
    "outlast.call": "Call",
    "outlast.client": "Client RunHandle RunView TransactionClient Unreadable",
    "outlast.decorators": "Step Workflow step workflow",
    "outlast.engine.definitions.retry": "Retry RetryAfter",
    "outlast.engine.operations.scopes": "Stop",
    "outlast.messages": "Query Signal Update",
    "outlast.model.asks": "Ask",
    "outlast.model.event": "Event",
    "outlast.model.queue_policy": "QueueOptions QueuePolicy Rate",
    "outlast.model.run": "Run Status",
    "outlast.context": "get_logger",
    "outlast.schedules": "Schedule",
    "outlast.transfer": "move",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
"""Where an exported name is defined, if not in `outlast.context`."""

# Asked when all extensions are loaded.
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    warnings.warn(
        "outlast is not tested on free-threaded Python: what its threads share is guarded by the global "
        "interpreter lock. Start Python with PYTHON_GIL=1",
        RuntimeWarning,
        stacklevel=2,
    )


if not TYPE_CHECKING:  # a type checker would take it as a promise that every name exists

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "sync":
            return importlib.import_module("outlast.sync")
        value = getattr(importlib.import_module(_MODULE_OF.get(name, "outlast.context")), name)
        globals()[name] = value  # the next time it is found without a call
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
