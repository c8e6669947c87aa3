"""What workflow and step code calls: waiting (time, signals, people), structure (children, maps, scopes, loops, branches,
new lives), publishing and progress, and facts about the current run.

`get_logger` returns a logger whose lines name their run, step and attempt. It logs nothing while code is replayed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import random as _random
import uuid as _uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, TypeVar, Unpack, overload

from outlast._public import public
from outlast.call import Call, check_call, workflow_here
from outlast.decorators import Step
from outlast.engine.definitions.retry import is_number
from outlast.engine.operations import scopes as _scopes
from outlast.engine.operations.ask import AskWait, FollowUp, Question, due_at
from outlast.engine.operations.ask import ask as ask_person
from outlast.engine.operations.child import ParentClose
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.scopes import Stop, run_loop, run_scope
from outlast.engine.operations.waits import SignalWait
from outlast.engine.replay.error_text import shown
from outlast.engine.replay.execution import Execution
from outlast.engine.replay.sync_workflow import current_sync_workflow, run_in_thread
from outlast.engine.steps.step_executor import StepContext, step_connection, step_context
from outlast.errors import ContinueAsNew, InvalidValue, StepFailed, WorkflowMisuse
from outlast.messages import Signal
from outlast.model.ids import check_name
from outlast.model.queue_policy import QueueOptions
from outlast.model.run import AttributeValue
from outlast.model.times import to_seconds
from outlast.model.validation import as_attributes

if TYPE_CHECKING:
    from typing_extensions import TypeForm  # of a type checker: `int | None` as well as a class


def the_run(name: str) -> Execution:
    """The run whose workflow code calls `outlast.name`, which works nowhere else."""
    run = workflow_here()
    if run is None:
        raise WorkflowMisuse(
            f"outlast.{name}() works in a workflow only: call it from a function that is decorated "
            "with @outlast.workflow and started with app.start(…). Steps and other code use what "
            "Python has, such as asyncio.sleep()"
        )
    return run


def perform(
    ask: Callable[[Execution], Coroutine[Any, Any, Any]], name: str = ""
) -> Coroutine[Any, Any, Any]:
    """Ask in the way of the workflow that is calling: a coroutine to await, or the answer."""
    question = ask(the_run(name))
    bridge = current_sync_workflow()
    if bridge is None:
        return question
    answer: Coroutine[Any, Any, Any] = bridge.call(question)
    return answer


T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Any])


@public
def sleep(
    seconds: float | timedelta = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
) -> Coroutine[Any, Any, None]:
    """Sleep durably: the run leaves memory, and the process may end meanwhile. With `math.inf` it sleeps
    until it is cancelled."""
    pause = 0.0
    seconds = to_seconds(seconds)
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


@public
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
def wait_for_signal(
    signal: Signal[T], *, timeout: timedelta | float | None = None
) -> Coroutine[Any, Any, T]: ...
@overload
def wait_for_signal(
    signal: str, *, timeout: timedelta | float | None = None
) -> Coroutine[Any, Any, Any]: ...
@overload
def wait_for_signal(
    signal: str, type: TypeForm[T], *, timeout: timedelta | float | None = None
) -> Coroutine[Any, Any, T]: ...
@public
def wait_for_signal(
    signal: str | Signal[Any], type: Any = Any, *, timeout: timedelta | float | None = None
) -> Any:
    """Wait for a signal, declared or by name; a `SignalTimeout` is raised when it does not come in time: never
    with None or `math.inf`. A signal that came before anybody waited is kept."""
    if isinstance(signal, Signal):
        type, signal = signal.type, signal.name
    check_name(signal, "signal name")
    limit: float | None = None
    if timeout is not None:
        where = f"wait_for_signal({signal!r}, timeout={timeout!r})"
        limit = _seconds_of(to_seconds(timeout), "seconds", where)
    return perform(lambda run: run.perform(SignalWait(run, signal, type, limit)), "wait_for_signal")


@overload
def halt(data: Any = None) -> Coroutine[Any, Any, Any]: ...
@overload
def halt(data: Any, type: TypeForm[T]) -> Coroutine[Any, Any, T]: ...
@overload
def halt(*, type: TypeForm[T]) -> Coroutine[Any, Any, T]: ...
@public
def halt(data: Any = None, type: Any = Any) -> Any:
    """Wait for a person: the run is `halted` and shows `data` until it is resumed with a
    value."""
    return perform(lambda run: run.perform(AskWait(run, Question(data=data), type)), "halt")


class AskOptions(TypedDict, total=False):
    """Options of a question; `ask` says what they do."""

    to: str
    data: Any
    title: str
    due: timedelta | datetime | None
    notify: Step[..., Any] | None
    remind: timedelta | None
    escalate: str


@overload
def ask(name: str, **options: Unpack[AskOptions]) -> Coroutine[Any, Any, Any]: ...
@overload
def ask(name: str, type: TypeForm[T], **options: Unpack[AskOptions]) -> Coroutine[Any, Any, T]: ...
@public
def ask(
    name: str,
    type: Any = Any,
    *,
    to: str = "",
    data: Any = None,
    title: str = "",
    due: timedelta | datetime | None = None,
    notify: Step[..., Any] | None = None,
    remind: timedelta | None = None,
    escalate: str = "",
) -> Any:
    """Ask a person, and wait for an answer of a type: ``ask("approve-expense", Approval, to="finance", data=expense)``.

    Each open question is a task of its own: `client.asks.list(to="finance")` finds it, and `client.asks.answer` answers
    it. `to` is a person or a group, `title` and `data` are what they see, the form comes from the type. It should be
    answered by `due`; a later answer still counts, and from then on the question is to `escalate`. `notify` is a step
    that is called with the `Ask` and a reason: ``asked``, ``reminder`` (every `remind`), ``overdue``. If it fails, the
    question stays open.
    """
    if notify is not None and not isinstance(notify, Step):
        raise WorkflowMisuse(
            f"ask({name!r}, notify={notify!r}) takes a step: decorate the function with @outlast.step"
        )
    check_name(name, "name of a question")

    def asking(run: Execution) -> Coroutine[Any, Any, Any]:
        question = Question(name=name, title=title, data=data, to=to, due_at=due_at(run.now, due))
        follow_up = FollowUp(notify=notify, remind=remind, escalate=escalate)
        return ask_person(run, AskWait(run, question, type), follow_up)

    return perform(asking, "ask")


@overload
def on_update(handler: Handler, /) -> Handler: ...
@overload
def on_update(*, name: str) -> Callable[[Handler], Handler]: ...
@public
def on_update(handler: Any = None, /, *, name: str | None = None) -> Any:
    """Declare, in a workflow, what answers an update: a function, ``async`` or plain, with one
    argument or none, that is known by its name.

    It is workflow code: it may call steps and change what the workflow has around it, and what it
    returns or raises goes to the caller of `RunHandle.update`. Declare it before the first await,
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


R = TypeVar("R")
Choice = TypeVar("Choice", bound=str | bool)


@public
def child(
    call: Call[R],
    *,
    id: str | None = None,
    parent_close: ParentClose | Literal["cancel", "abandon"] = ParentClose.CANCEL,
    queue: str | QueueOptions | None = None,
) -> Coroutine[Any, Any, R]:
    """Run the call of a workflow as a child, with options: ``child(order("Momo"), id="order-1")``. An ``async def``
    workflow that needs no options awaits the call itself.

    The child has a history of its own. `id` is its id, instead of one below its parent's. `parent_close`
    says what becomes of it when its parent ends first. With `queue` it waits there for its turn.
    """
    check_call(call, "child")
    policy = ParentClose(parent_close)
    options = QueueOptions(queue) if isinstance(queue, str) else queue
    return perform(
        lambda run: call.as_child(run, id=id, parent_close=policy, queue=options), "child"
    )


@overload
def map(
    step: Step[[T], R], items: Iterable[T], *, concurrency: int = 10
) -> Coroutine[Any, Any, list[R]]: ...
@overload
def map(
    step: Step[[T], R], items: Iterable[T], *, concurrency: int = 10, tolerate: int
) -> Coroutine[Any, Any, list[R | StepFailed]]: ...
@overload
def map(
    step: Step[[T], R], items: Iterable[T], *, concurrency: int = 10, enough: int | None
) -> Coroutine[Any, Any, list[R | None]]: ...
@overload
def map(
    step: Step[[T], R],
    items: Iterable[T],
    *,
    concurrency: int = 10,
    tolerate: int,
    enough: int | None,
) -> Coroutine[Any, Any, list[R | StepFailed | None]]: ...
@public
def map(
    step: Step[[T], Any],
    items: Iterable[T],
    *,
    concurrency: int = 10,
    tolerate: int = 0,
    enough: int | None = None,
) -> Coroutine[Any, Any, list[Any]]:
    """Call a step for each item, `concurrency` at once; the results in the order of the items.

    The first failure beyond `tolerate` ends the map with `MapFailed`; tolerated ones stand in the
    list as `StepFailed` values. With `enough`, the map is over when so many have succeeded, and
    the others are None.
    """
    if not isinstance(step, Step):
        raise WorkflowMisuse(
            f"map({step!r}, …) takes a step: decorate the function with @outlast.step. For a child run of each item: "
            "asyncio.gather(*(order(item) for item in items))"
        )
    found = list(items)
    return perform(
        lambda run: run.perform(
            MapCall(
                run,
                step.definition,
                found,
                concurrency=concurrency,
                tolerate=tolerate,
                enough=enough,
            )
        ),
        "map",
    )


@public
def scope(
    body: Callable[..., Awaitable[R]], *args: Any, name: str | None = None, **kwargs: Any
) -> Coroutine[Any, Any, R]:
    """Run part of a workflow so that, once it is finished, only its result is kept in replay."""
    label = check_name(name or body.__name__, "name of a scope")
    return perform(lambda run: run_scope(run, _awaited(run, body), args, kwargs, label), "scope")


@public
def loop(
    body: Callable[[T], Awaitable[T | Stop[R]]], state: T, *, name: str | None = None
) -> Coroutine[Any, Any, R]:
    """Call `body` with a state, again and again with the state it returns, until it returns
    ``outlast.Stop(result)``. A replay begins at the last iteration, however many there were."""
    label = check_name(name or body.__name__, "name of a loop")
    return perform(lambda run: run_loop(run, _awaited(run, body), state, label), "loop")


@public
def branch(name: str, choice: Choice) -> Choice:
    """Record a decision and give it back; in a replay, the one that was recorded."""
    return _scopes.branch(the_run("branch"), name, choice)


@public
def patched(id: str) -> bool:
    """Whether this run takes the new code: True for runs that had not passed this point when the
    new code came, False for those that had."""
    return _scopes.patched(the_run("patched"), check_name(id, "patch id"))


@public
def continue_as_new(call: Call[Any]) -> NoReturn:
    """Go on under the same id with a call of the same workflow and an empty history:
    ``continue_as_new(meter(total))``. Signals that the code has not received are kept."""
    workflow = check_call(call, "continue_as_new").workflow.definition
    run = the_run("continue_as_new")
    if workflow.name != run.workflow.name:
        raise WorkflowMisuse(
            f"continue_as_new({workflow.name}(…)) in workflow {run.workflow.name!r}: a run goes on as the "
            f"same workflow. Call {run.workflow.name}(…), or start {workflow.name}(…) as a child"
        )
    raise ContinueAsNew(call.args, call.kwargs)


def _awaited(run: Execution, body: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A body that can be awaited. That of a plain workflow is plain, and gets a thread like it."""
    if inspect.iscoroutinefunction(body) or current_sync_workflow() is None:
        return body

    @wraps(body)
    async def in_thread(*args: Any, **kwargs: Any) -> Any:
        return await run_in_thread(run, body, args, kwargs)

    return in_thread


@public
def publish(**values: Any) -> None:
    """Publish values for queries of the run, from the next commit on; they stay readable when
    the run is asleep or over."""
    run = the_run("publish")
    for name, value in values.items():
        where = f"published {check_name(name, 'name of a published value')!r}"
        run.pending.published[name] = run.codec.encode_untyped(value, where=where)


@public
def set_attributes(**values: AttributeValue) -> None:
    """Set search attributes of the run: text, numbers, booleans. A moment or a UUID is stored as text, an Enum member
    as its value, a Decimal as a number."""
    run = the_run("set_attributes")
    run.pending.attributes.update(as_attributes(values))


@public
def now() -> datetime:
    """The time of the last event: the same in every replay."""
    return the_run("now").now


@public
def random() -> _random.Random:
    """A source of random numbers that gives the same ones in every replay."""
    run = the_run("random")
    return _random.Random(f"{run.seed}/{run.scope.key('random')}")


@public
def uuid4() -> _uuid.UUID:
    """A random UUID that is the same in every replay."""
    return _uuid.UUID(int=random().getrandbits(128), version=4)


@public
def step_info() -> StepContext:
    """What a step may know while it runs: its run, key, attempt and idempotency key."""
    try:
        return step_context.get()
    except LookupError:
        raise WorkflowMisuse("step_info() works in a step that a workflow has called") from None


@public
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


@public
def heartbeat(details: Any = None) -> None:
    """Report that a long step is alive, with details that its next attempt can read by
    `last_heartbeat`."""
    context = step_info()
    context.report(context.codec.encode_untyped(details, where="heartbeat details"))


@overload
def last_heartbeat() -> Any: ...
@overload
def last_heartbeat(type: TypeForm[T]) -> T | None: ...
@public
def last_heartbeat(type: Any = Any) -> Any:
    """What an earlier attempt of this step reported last, or None."""
    context = step_info()
    if context.progress is None:
        return None
    return context.codec.decode(context.progress, type, where="heartbeat details")


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger for workflow and step code. Its records have `run`, `workflow`, `step` and `attempt`,
    as far as there are any, and their messages end with them."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is logging's
        """Whether something is logged now: not while code is replayed."""
        run = workflow_here()
        return (run is None or not run.replaying) and super().isEnabledFor(level)

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log, with the place where this is said."""
        if not self.isEnabledFor(level):
            return
        place = _place()
        if place:
            kwargs["extra"] = {**place, **kwargs.get("extra", {})}
            place_text = " ".join(f"{name}={shown(str(value))}" for name, value in place.items())
            msg = f"{msg} [{place_text.replace('%', '%%') if args else place_text}]"
        # One frame more than usual lies between the user's line and the logger.
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        self.logger.log(level, msg, *args, **kwargs)


@public
def get_logger(name: str | None = None) -> RunLogger:
    """The logger to use in workflows and steps, instead of `logging.getLogger`."""
    return RunLogger(logging.getLogger(name), {})


def _place() -> dict[str, Any]:
    run = workflow_here()
    if run is not None:
        return {"run": run.run_id, "workflow": run.workflow.name}
    step = step_context.get(None)
    if step is not None:
        return {"run": step.run_id, "step": step.key, "attempt": step.attempt}
    return {}
