"""The same names for synchronous programs and plain ``def`` workflows: nothing here is awaited.

An `App` of this module runs the engine on a loop in a background thread, so it works in a script,
in a web framework without async, and inside a running loop such as a notebook's. In a plain
workflow, steps are called as they are and the functions below block until they are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from outlast import api
from outlast.api import (
    Step,
    Workflow,
    branch,
    continue_as_new,
    get_logger,
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
    workflow,
)
from outlast.app import App as AsyncApp
from outlast.client import RunHandle as AsyncRunHandle
from outlast.client.enlisted import Enlisted as AsyncEnlisted
from outlast.engine.bridge import current_bridge
from outlast.engine.definition import StepDefinition
from outlast.engine.operations.region import Stop
from outlast.engine.retry import Retry
from outlast.errors import Closed, InvalidValue, WorkflowMisuse
from outlast.model.activity import Activity
from outlast.model.entry import Entry
from outlast.model.event import Event
from outlast.model.run import Run, Status
from outlast.ports.store import Store
from outlast.schedules import Schedule
from outlast.schedules.plain import PlainSchedules
from outlast.worker.background import Background

__all__ = [
    "App",
    "Retry",
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
    "wait_for",
    "workflow",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class PlainStep(Protocol[P, R_co]):
    """A step as a plain workflow, or a program without workflows, calls it."""

    definition: StepDefinition

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Its result."""
        ...

    def compensate(self, function: Callable[[R_co], Any]) -> Any:
        """Declare what undoes this step."""
        ...


class DeclareStep(Protocol):
    """`step(…)` with options: what then takes the function."""

    def __call__(self, function: Callable[P, R], /) -> PlainStep[P, R]:
        """The step."""
        ...


@overload
def step(function: Callable[P, R], /) -> PlainStep[P, R]: ...
@overload
def step(**options: Any) -> DeclareStep: ...
def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a step for plain workflows; see `outlast.step`."""
    declare: Any = api.step
    return declare(**options) if function is None else declare(function)


class RunHandle(Generic[T]):
    """A run, by id: what a program holds of it."""

    def __init__(self, call: Callable[[Coroutine[Any, Any, Any]], Any], run: AsyncRunHandle[T]):
        self._call = call
        self._run = run
        self.id = run.id

    def result(self, *, timeout: float | None = None) -> T:
        """Wait for the run to end and give its result."""
        value: T = self._call(self._run.result(timeout=timeout))
        return value

    def status(self) -> Status:
        """Where the run stands."""
        status: Status = self._call(self._run.status())
        return status

    def signal(self, name: str, value: Any = None, *, dedup: str | None = None) -> None:
        """Send a signal; with `dedup`, once however often this is called."""
        self._call(self._run.signal(name, value, dedup=dedup))

    def resume(self, value: Any = None) -> None:
        """Answer a halt, or let a paused run go on."""
        self._call(self._run.resume(value))

    def cancel(self, reason: str = "cancelled") -> None:
        """Ask the run to stop: its code sees CancelledError, and what it did is compensated."""
        self._call(self._run.cancel(reason))

    def query(self, name: str, type: Any = Any) -> Any:
        """What the workflow has last published under a name."""
        return self._call(self._run.query(name, type))

    def update(self, name: str, value: Any = None, type: Any = Any, **options: Any) -> Any:
        """Ask the run for something and wait for its answer; see `outlast.RunHandle.update`."""
        return self._call(self._run.update(name, value, type, **options))


class Enlisted:
    """What `App.on` gives: the app inside a transaction of yours, as `outlast.App.on` does it."""

    def __init__(
        self, call: Callable[[Coroutine[Any, Any, Any]], Any], enlisted: AsyncEnlisted
    ) -> None:
        self._call = call
        self._enlisted = enlisted

    def start(self, workflow: Workflow[..., R], *args: Any, **options: Any) -> RunHandle[R]:
        """Start a run with the transaction."""
        run = self._call(self._enlisted.start(workflow, *args, **options))
        return RunHandle(self._call, run)

    def signal(
        self, run_id: str, name: str, value: Any = None, *, dedup: str | None = None
    ) -> None:
        """Send a signal with the transaction."""
        self._call(self._enlisted.signal(run_id, name, value, dedup=dedup))

    def cancel(self, run_id: str, reason: str = "cancelled") -> None:
        """Ask a run to stop, with the transaction."""
        self._call(self._enlisted.cancel(run_id, reason))


class App:
    """`outlast.App` for synchronous programs; safe to use from several threads."""

    def __init__(self, store: str | Store, **options: Any) -> None:
        self._store = store
        self._options = options
        self._background: Background | None = None
        self._app: AsyncApp | None = None

    def to_async(self) -> AsyncApp:
        """An `outlast.App` with the same store and workflows, not open: for whoever has a loop."""
        return AsyncApp(self._store, **self._options)

    def open(self) -> None:
        """Open the store and go on with what is unfinished."""
        if self._background is not None and self._background.is_here:
            return
        self._background = Background()
        try:
            self._app = self.to_async()
            self._call(self._app.open())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Stop. What is under way is handed back and goes on wherever it is claimed next."""
        try:
            if self._app is not None and self._background is not None and self._background.is_here:
                self._call(self._app.close())
        finally:
            self._stop()

    def __enter__(self) -> Self:
        if self._background is not None and self._background.is_here:
            raise InvalidValue(
                "this app is open already: the end of this block would close it under whoever has "
                "opened it. Use it as it is"
            )
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def schedules(self) -> PlainSchedules:
        """What is started by the clock."""
        return PlainSchedules(self._call, lambda: self._opened.schedules)

    def start(self, workflow: Workflow[..., R], *args: Any, **options: Any) -> RunHandle[R]:
        """Start a run; see `outlast.App.start`."""
        return RunHandle(self._call, self._call(self._opened.start(workflow, *args, **options)))

    def on(self, transaction: Any) -> Enlisted:
        """This app inside a transaction of yours; see `outlast.App.on`."""
        return Enlisted(self._call, self._opened.on(transaction))

    def handle(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that was started earlier or elsewhere."""
        return RunHandle(self._call, self._opened.handle(run_id))

    def get(self, run_id: str) -> Run:
        """The record of a run."""
        run: Run = self._call(self._opened.get(run_id))
        return run

    def history(self, run_id: str) -> list[Event]:
        """All events of a run."""
        events: list[Event] = self._call(self._opened.history(run_id))
        return events

    def entries(self, run_id: str) -> list[Entry]:
        """The audit of a run."""
        entries: list[Entry] = self._call(self._opened.entries(run_id))
        return entries

    def activities(self, run_id: str) -> list[Activity]:
        """The state of each step of a run."""
        activities: list[Activity] = self._call(self._opened.activities(run_id))
        return activities

    def find(self, **filters: Any) -> list[Run]:
        """Runs that match, newest first."""

        async def found() -> list[Run]:
            return [run async for run in self._opened.find(**filters)]

        runs: list[Run] = self._call(found())
        return runs

    def pause(self, run_id: str) -> None:
        """Let a run rest where it is until it is resumed."""
        self._call(self._opened.pause(run_id))

    def terminate(self, run_id: str, reason: str = "terminated") -> None:
        """End a run now, whoever holds it."""
        self._call(self._opened.terminate(run_id, reason))

    def retry(self, run_id: str) -> RunHandle[Any]:
        """Begin a failed run anew from the step that failed."""
        return RunHandle(self._call, self._call(self._opened.retry(run_id)))

    def fork(self, run_id: str, step: str, **options: Any) -> RunHandle[Any]:
        """Begin a new run that shares another one's history up to a step; see `outlast.App.fork`."""
        return RunHandle(self._call, self._call(self._opened.fork(run_id, step, **options)))

    def delete(self, run_id: str, *, uid: str | None = None) -> bool:
        """Remove a run and all it owns; whether it was there."""
        return bool(self._call(self._opened.delete(run_id, uid=uid)))

    @property
    def _opened(self) -> AsyncApp:
        if self._app is None:
            raise Closed("this app is not open: use `with outlast.sync.App(…) as app:`")
        return self._app

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if current_bridge() is not None:
            coroutine.close()
            raise WorkflowMisuse(
                "workflow code called its app: what that does would be done again in every replay. "
                "Use outlast.sync.child() for another run, or put the call into a step"
            )
        if self._background is None:
            coroutine.close()
            raise Closed("this app is not open: use `with outlast.sync.App(…) as app:`")
        return self._background.call(coroutine)

    def _stop(self) -> None:
        background = self._background
        self._background = self._app = None
        if background is not None:
            background.stop()


# -- in a plain workflow --------------------------------------------------------------------------


def sleep(seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
    """Sleep durably: the run leaves memory, and the process may end meanwhile."""
    _plain("sleep")
    cast("None", api.sleep(seconds, minutes=minutes, hours=hours, days=days))


def sleep_until(moment: datetime) -> None:
    """Sleep durably until a moment, which must have a time zone."""
    _plain("sleep_until")
    cast("None", api.sleep_until(moment))


@overload
def wait_for(signal: str, type: type[T], *, timeout: timedelta | float | None = None) -> T: ...
@overload
def wait_for(signal: str, type: Any = Any, *, timeout: timedelta | float | None = None) -> Any: ...
def wait_for(signal: str, type: Any = Any, *, timeout: timedelta | float | None = None) -> Any:
    """Wait for a signal by name; `SignalTimeout` when it does not come in time."""
    _plain("wait_for")
    return api.wait_for(signal, type, timeout=timeout)


@overload
def halt(data: Any, type: type[T]) -> T: ...
@overload
def halt(data: Any = None, type: Any = Any) -> Any: ...
def halt(data: Any = None, type: Any = Any) -> Any:
    """Wait for a person, showing `data`, until somebody resumes the run with a value."""
    _plain("halt")
    return api.halt(data, type)


def child(workflow: Workflow[P, R], *args: Any, **options: Any) -> R:
    """Run another workflow as a child and wait for its result."""
    _plain("child")
    return cast("R", api.child(workflow, *args, **options))


def map(step: Step[[T], R] | PlainStep[[T], R], items: Iterable[T], **options: Any) -> list[R]:
    """Call a step for each item, several at once; the results in the order of the items."""
    _plain("map")
    return cast("list[R]", api.map(cast("Step[[T], R]", step), items, **options))


def scope(body: Callable[..., R], *args: Any, name: str | None = None, **kwargs: Any) -> R:
    """Run part of a workflow so that, once it is finished, only its result is kept in replay."""
    _plain("scope")
    return cast("R", api.scope(cast("Any", body), *args, name=name, **kwargs))


def loop(body: Callable[[T], T | Stop[R]], state: T, *, name: str | None = None) -> R:
    """Call `body` with a state, again and again with the state it returns, until it returns
    ``Stop(result)``. A replay begins at the last iteration."""
    _plain("loop")
    return cast("R", api.loop(cast("Any", body), state, name=name))


def _plain(name: str) -> None:
    if current_bridge() is None:
        raise WorkflowMisuse(
            f"outlast.sync.{name}() works in a plain `def` workflow: in an `async def` one use "
            f"`await outlast.{name}(…)`"
        )
