"""What a workflow or a step tells, and what it may know of itself."""

from __future__ import annotations

import random as _random
import uuid as _uuid
from datetime import datetime
from typing import Any, TypeVar, overload

from outlast.api.inside import the_run
from outlast.engine.bodies import StepContext, step_connection, step_context
from outlast.engine.signature import type_of_value
from outlast.errors import WorkflowMisuse
from outlast.model.checks import check_attributes
from outlast.model.ids import check_name
from outlast.model.run import Attribute

T = TypeVar("T")


def publish(**values: Any) -> None:
    """Show values to whoever queries the run, from the next commit on; they stay readable when
    the run is asleep or over."""
    run = the_run("publish")
    for name, value in values.items():
        where = f"published {check_name(name, 'name of a published value')!r}"
        run.draft.published[name] = run.codec.encode(value, type_of_value(value), where=where)


def set_attributes(**values: Attribute) -> None:
    """Set search attributes of the run: text, numbers, booleans."""
    run = the_run("set_attributes")
    check_attributes(values)
    run.draft.attributes.update(values)


def now() -> datetime:
    """The time of the last event: the same in every replay."""
    return the_run("now").now


def random() -> _random.Random:
    """A source of random numbers that gives the same ones in every replay."""
    run = the_run("random")
    return _random.Random(f"{run.seed}/{run.scope.key('random')}")


def uuid4() -> _uuid.UUID:
    """A random UUID that is the same in every replay."""
    return _uuid.UUID(int=random().getrandbits(128), version=4)


def step_info() -> StepContext:
    """What a step may know while it runs: its run, key, attempt and idempotency key."""
    try:
        return step_context.get()
    except LookupError:
        raise WorkflowMisuse("step_info() works in a step that a workflow has called") from None


def connection() -> Any:
    """In a transactional step, the connection whose transaction ends with the step: what is written
    through it is there if and only if the step is recorded as completed. On PostgreSQL it is
    asyncpg's."""
    found = step_connection.get(None)
    if found is None:
        raise WorkflowMisuse(
            "connection() works in a step that a workflow has called and that is declared with "
            "step(transactional=True)"
        )
    return found


def heartbeat(details: Any = None) -> None:
    """Report that a long step is alive, with details that its next attempt can read by
    `last_heartbeat`."""
    context = step_info()
    kind = type_of_value(details)
    context.report(context.codec.encode(details, kind, where="heartbeat details"))


@overload
def last_heartbeat(type: type[T]) -> T | None: ...
@overload
def last_heartbeat(type: Any = Any) -> Any: ...
def last_heartbeat(type: Any = Any) -> Any:
    """What an earlier attempt of this step reported last, or None."""
    context = step_info()
    if context.progress is None:
        return None
    return context.codec.decode(context.progress, type, where="heartbeat details")
