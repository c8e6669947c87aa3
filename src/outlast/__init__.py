"""outlast: workflows that outlast the process that runs them."""

import sys
import warnings
from typing import TYPE_CHECKING, Any

from outlast import errors
from outlast._version import __version__ as __version__
from outlast.app import App
from outlast.call import Call
from outlast.client import Client, RunHandle
from outlast.context import (
    branch,
    child,
    connection,
    continue_as_new,
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
from outlast.engine.definitions.retry import Retry
from outlast.engine.operations.scopes import Stop
from outlast.model.event import Event
from outlast.model.queue_policy import QueueOptions, QueuePolicy, Rate
from outlast.model.run import Run, Status
from outlast.run_logging import get_logger
from outlast.schedules import Schedule

if TYPE_CHECKING:
    from outlast.transfer import move

__all__ = [
    "App",
    "Call",
    "Client",
    "Event",
    "QueueOptions",
    "QueuePolicy",
    "Rate",
    "Retry",
    "Run",
    "RunHandle",
    "Schedule",
    "Status",
    "Step",
    "Stop",
    "Workflow",
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
    "uuid4",
    "wait_for_signal",
    "workflow",
]

# Asked when all extensions are loaded: one that is not made for it turns the lock on again.
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    warnings.warn(
        "outlast is not tested on free-threaded Python: what its threads share is guarded by the global "
        "interpreter lock. Start Python with PYTHON_GIL=1",
        RuntimeWarning,
        stacklevel=2,
    )


def __getattr__(name: str) -> Any:
    # Loaded when it is used: few programs move runs, and each would pay for it at its start.
    if name == "move":
        from outlast.transfer import move

        return move
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
