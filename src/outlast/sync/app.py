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
from outlast.ports.store import Store
from outlast.sync.handles import Client, RunHandle, TransactionClient
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
    def client(self) -> Client:
        """Finds runs, and has the queues and the schedules; see `outlast.App.client`."""
        return Client(self._call, lambda: self._opened.client)

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

    def get(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that was started earlier or elsewhere."""
        return RunHandle(self._call, self._opened.get(run_id))

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
