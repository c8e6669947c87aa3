"""outlast: workflows that outlast the process that runs them."""

from outlast.api import (
    Step,
    Workflow,
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
    step,
    step_info,
    uuid4,
    wait_for,
    workflow,
)
from outlast.app import App
from outlast.client import RunHandle
from outlast.engine.operations.region import Stop
from outlast.engine.retry import Retry
from outlast.model.flow import Flow, Rate
from outlast.model.place import InQueue
from outlast.moving import move
from outlast.schedules import Schedule

__version__ = "0.1.0.dev0"

__all__ = [
    "App",
    "Flow",
    "InQueue",
    "Rate",
    "Retry",
    "RunHandle",
    "Schedule",
    "Step",
    "Stop",
    "Workflow",
    "branch",
    "child",
    "connection",
    "continue_as_new",
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
    "wait_for",
    "workflow",
]
