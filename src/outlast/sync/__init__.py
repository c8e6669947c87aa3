"""The same names for synchronous programs and plain ``def`` workflows: nothing here is awaited.

An `App` of this module runs the engine on a loop in a background thread, so it works in a script,
in a web framework without async, and inside a running loop such as a notebook's. In a plain
workflow, steps are called as they are and the functions below block until they are answered.
"""

from outlast.context import (
    branch,
    continue_as_new,
    heartbeat,
    last_heartbeat,
    now,
    on_update,
    patched,
    publish,
    random,
    set_attributes,
    step_info,
    uuid4,
)
from outlast.decorators import Step, Workflow, workflow
from outlast.engine.definitions.retry import Retry, RetryAfter
from outlast.engine.operations.scopes import Stop
from outlast.run_logging import get_logger
from outlast.schedules import Schedule
from outlast.sync.app import App
from outlast.sync.handles import RunHandle
from outlast.sync.plain import (
    child,
    halt,
    loop,
    map,
    scope,
    sleep,
    sleep_until,
    step,
    wait_for_signal,
)

__all__ = [
    "App",
    "Retry",
    "RetryAfter",
    "RunHandle",
    "Schedule",
    "Step",
    "Stop",
    "Workflow",
    "branch",
    "child",
    "continue_as_new",
    "get_logger",
    "halt",
    "heartbeat",
    "last_heartbeat",
    "loop",
    "map",
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
