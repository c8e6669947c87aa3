"""What user code calls: `step` and `workflow` to declare, and what a workflow may ask for.

In an ``async def`` workflow each of these is awaited. In a plain ``def`` workflow the same names
block and return (`outlast.sync` has them with types to match). Outside a workflow a step is just
the function, and everything else says where it belongs.
"""

from outlast.api.declaring import (
    Step,
    Workflow,
    step,
    workflow,
)
from outlast.api.logs import RunLogger, get_logger
from outlast.api.structure import (
    branch,
    child,
    continue_as_new,
    loop,
    map,
    patched,
    scope,
)
from outlast.api.telling import (
    connection,
    heartbeat,
    last_heartbeat,
    now,
    publish,
    random,
    set_attributes,
    step_info,
    uuid4,
)
from outlast.api.waiting import (
    halt,
    on_update,
    sleep,
    sleep_until,
    wait_for,
)

__all__ = [
    "RunLogger",
    "Step",
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
