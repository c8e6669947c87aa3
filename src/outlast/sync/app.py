"""App: the engine on a loop in a background thread, for callers that block."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from outlast.app import App as AsyncApp
from outlast.call import Call, mark_used
from outlast.client.client import StartOptions
from outlast.engine.replay.sync_workflow import current_sync_workflow
from outlast.errors import Closed, InvalidValue, WorkflowMisuse
from outlast.model.event import Event
from outlast.model.run import Run
from outlast.model.run_contents import Activity, Entry
from outlast.ports.store import Store
from outlast.ports.store_methods import LOCK_PATIENCE_S
from outlast.sync.handles import RunHandle, TransactionClient
from outlast.sync.schedules import Schedules
from outlast.worker.background_loop import BackgroundLoop

R = TypeVar("R")
T = TypeVar("T")

NOT_OPEN = "this app is not open: use `with outlast.sync.App(…) as app:`"


class App:
    """`outlast.App` for synchronous programs; safe to use from several threads."""

    def __init__(self, store: str | Store, **options: Any) -> None:
        self._store = store
        self._options = options
        self._background: BackgroundLoop | None = None
        self._app: AsyncApp | None = None

    def to_async(self) -> AsyncApp:
        """An `outlast.App` with the same store and workflows, not open: for whoever has a loop."""
        return AsyncApp(self._store, **self._options)

    def open(self) -> None:
        """Open the store and go on with what is unfinished."""
        if self._is_open:
            return
        self._background = BackgroundLoop()
        try:
            self._app = self.to_async()
            self._call(self._app.open())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Stop. What is under way is handed back and goes on wherever it is claimed next."""
        try:
            if self._app is not None and self._is_open:
                self._call(self._app.close())
        finally:
            self._stop()

    def __enter__(self) -> Self:
        if self._is_open:
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
    def schedules(self) -> Schedules:
        """What is started by the clock."""
        return Schedules(self._call, lambda: self._opened.schedules)

    @overload
    def start(
        self, call: Call[R], *, here: bool = True, **options: Unpack[StartOptions]
    ) -> RunHandle[R]: ...
    @overload
    def start(
        self,
        call: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        here: bool = True,
        **options: Unpack[StartOptions],
    ) -> RunHandle[Any]: ...
    def start(self, call: Any, *args: Any, **options: Any) -> RunHandle[Any]:
        """Start a run; see `outlast.App.start`."""
        mark_used(call)
        return RunHandle(self._call, self._call(self._opened.start(call, *args, **options)))

    def on(self, transaction: Any) -> TransactionClient:
        """This app inside a transaction of yours; see `outlast.App.on`."""
        return TransactionClient(self._call, self._opened.on(transaction))

    def handle(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that was started earlier or elsewhere."""
        return RunHandle(self._call, self._opened.handle(run_id))

    def get(self, run_id: str) -> Run:
        """The record of a run."""
        return self._call(self._opened.get(run_id))

    def history(self, run_id: str) -> list[Event]:
        """All events of a run."""
        return self._call(self._opened.history(run_id))

    def entries(self, run_id: str) -> list[Entry]:
        """The audit of a run."""
        return self._call(self._opened.entries(run_id))

    def activities(self, run_id: str) -> list[Activity]:
        """The state of each step of a run."""
        return self._call(self._opened.activities(run_id))

    def find(self, **filters: Any) -> list[Run]:
        """Runs that match, newest first."""

        async def found() -> list[Run]:
            return [run async for run in self._opened.find(**filters)]

        return self._call(found())

    def pause(self, run_id: str, *, timeout: float = LOCK_PATIENCE_S) -> None:
        """Let a run rest where it is until it is resumed."""
        self._call(self._opened.pause(run_id, timeout=timeout))

    def terminate(
        self, run_id: str, reason: str = "terminated", *, timeout: float = LOCK_PATIENCE_S
    ) -> None:
        """End a run now, whoever holds it."""
        self._call(self._opened.terminate(run_id, reason, timeout=timeout))

    def retry(self, run_id: str, *, timeout: float | None = 30.0) -> RunHandle[Any]:
        """Let a failed run go on from the step that failed. See `outlast.App.retry`."""
        return RunHandle(self._call, self._call(self._opened.retry(run_id, timeout=timeout)))

    def fork(self, run_id: str, step: str, **options: Any) -> RunHandle[Any]:
        """Begin a new run that shares another one's history up to a step; see `outlast.App.fork`."""
        return RunHandle(self._call, self._call(self._opened.fork(run_id, step, **options)))

    def delete(
        self,
        run_id: str,
        *,
        uid: str | None = None,
        force: bool = False,
        timeout: float = LOCK_PATIENCE_S,
    ) -> bool:
        """Remove a run and all it owns; whether it was there. See `outlast.App.delete`."""
        return self._call(self._opened.delete(run_id, uid=uid, force=force, timeout=timeout))

    @property
    def _is_open(self) -> bool:
        return self._background is not None and self._background.is_here

    @property
    def _opened(self) -> AsyncApp:
        if self._app is None:
            raise Closed(NOT_OPEN)
        return self._app

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if current_sync_workflow() is not None:
            work.close()
            raise WorkflowMisuse(
                "workflow code called its app: what that does would be done again in every replay. "
                "Use outlast.sync.child(order(…)) for another run, or put the call into a step"
            )
        if self._background is None:
            work.close()
            raise Closed(NOT_OPEN)
        return self._background.call(work)

    def _stop(self) -> None:
        background = self._background
        self._background = self._app = None
        if background is not None:
            background.stop()
