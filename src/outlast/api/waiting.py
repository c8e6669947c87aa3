"""What a workflow waits for: time, signals, people, and what others may ask of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

from outlast.api.inside import perform, the_run
from outlast.engine.execution import Execution
from outlast.engine.operations.halt import HaltWait
from outlast.engine.operations.signal import SignalWait
from outlast.engine.retry import is_number
from outlast.errors import InvalidValue, WorkflowMisuse
from outlast.model.ids import check_name

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Any])


def sleep(
    seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
) -> Coroutine[Any, Any, None]:
    """Sleep durably: the run leaves memory, and the process may end meanwhile. With `math.inf` it sleeps
    until it is cancelled."""
    pause = 0.0
    for name, amount in {
        "days": days,
        "hours": hours,
        "minutes": minutes,
        "seconds": seconds,
    }.items():
        pause += _seconds_of(amount, name, f"sleep({name}={amount!r})")
    if pause < 0:
        raise InvalidValue(f"sleep({pause} s) is negative: use 0 or more")

    return perform(lambda _: asyncio.sleep(pause), "sleep")


def sleep_until(moment: datetime) -> Coroutine[Any, Any, None]:
    """Sleep durably until a moment, which must have a time zone."""
    given: object = moment
    if not isinstance(given, datetime) or moment.tzinfo is None:
        raise InvalidValue(f"sleep_until({moment!r}) needs a datetime with a time zone")

    async def asleep(run: Execution) -> None:
        await asyncio.sleep(max((moment - run.now).total_seconds(), 0))

    return perform(asleep, "sleep_until")


def _seconds_of(amount: float, unit: str, where: str) -> float:
    """So many days, hours, minutes or seconds, however many; whole microseconds if there are not too many."""
    if not is_number(amount):
        raise InvalidValue(f"{where} is no time to wait: use a number, or math.inf for ever")
    try:
        return timedelta(**{unit: amount}).total_seconds()
    except OverflowError:
        return math.copysign(math.inf, amount)


@overload
def wait_for(
    signal: str, type: type[T], *, timeout: timedelta | float | None = None
) -> Coroutine[Any, Any, T]: ...
@overload
def wait_for(
    signal: str, type: Any = Any, *, timeout: timedelta | float | None = None
) -> Coroutine[Any, Any, Any]: ...
def wait_for(signal: str, type: Any = Any, *, timeout: timedelta | float | None = None) -> Any:
    """Wait for a signal by name; a `SignalTimeout` is raised when it does not come in time: never
    with None or `math.inf`. A signal that came before anybody waited is kept."""
    check_name(signal, "signal name")
    limit: float | None = None
    if isinstance(timeout, timedelta):
        limit = timeout.total_seconds()
    elif timeout is not None:
        limit = _seconds_of(timeout, "seconds", f"wait_for({signal!r}, timeout={timeout!r})")
    return perform(lambda run: run.answer(SignalWait(run, signal, type, limit)), "wait_for")


@overload
def halt(data: Any, type: type[T]) -> Coroutine[Any, Any, T]: ...
@overload
def halt(data: Any = None, type: Any = Any) -> Coroutine[Any, Any, Any]: ...
def halt(data: Any = None, type: Any = Any) -> Any:
    """Wait for a person: the run is `halted` and shows `data` until somebody resumes it with a
    value."""
    return perform(lambda run: run.answer(HaltWait(run, data, type)), "halt")


@overload
def on_update(handler: Handler, /) -> Handler: ...
@overload
def on_update(*, name: str) -> Callable[[Handler], Handler]: ...
def on_update(handler: Any = None, /, *, name: str | None = None) -> Any:
    """Declare, in a workflow, what answers an update: a function, ``async`` or plain, with one
    argument or none, that is known by its name.

    It is workflow code: it may call steps and change what the workflow has around it, and what it
    returns or raises goes to whoever called `RunHandle.update`. Declare it before the first await,
    outside of scopes and loops, so that it is there in every replay. An update that comes earlier
    waits, and the run does not end before those it has accepted are answered.
    """
    run = the_run("on_update")

    def declare(handler: Any) -> Any:
        if not callable(handler):
            raise WorkflowMisuse(f"on_update({handler!r}): decorate a function with it")
        known = check_name(name or handler.__name__, "update name")
        if any(character in known for character in "/#:"):
            raise WorkflowMisuse(f"update name {known!r} contains '/', '#' or ':': leave it out")
        run.updates.on(known, handler)
        return handler

    return declare if handler is None else declare(handler)
