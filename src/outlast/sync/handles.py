"""What an app hands out: a run by its id, and itself inside a transaction."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, Unpack, overload

from outlast.call import Call, mark_used
from outlast.client import RunHandle as AsyncRunHandle
from outlast.client.client import StartOptions
from outlast.client.transaction import TransactionClient as AsyncEnlisted
from outlast.messages import Query, Signal, Update
from outlast.model.run import Status
from outlast.ports.store_methods import LOCK_PATIENCE_S

R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")


class RunBlocking(Protocol):
    """Runs something async to its end."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Its result."""
        ...


class RunHandle(Generic[T]):
    """A run, by id: what a program holds of it."""

    def __init__(self, call: RunBlocking, run: AsyncRunHandle[T]) -> None:
        self._call = call
        self._run = run
        self.id = run.id

    def result(self, *, timeout: float | None = None) -> T:
        """Wait for the run to end and give its result."""
        return self._call(self._run.result(timeout=timeout))

    def status(self) -> Status:
        """Where the run stands."""
        return self._call(self._run.status())

    def signal(
        self,
        signal: str | Signal[Any],
        value: Any = None,
        *,
        dedup: str | None = None,
        timeout: float = LOCK_PATIENCE_S,
    ) -> None:
        """Send a signal; with `dedup`, once however often this is called. `Busy` if a transaction, of
        yours maybe, has locked the run for `timeout` seconds: so it is for `resume` and `cancel`."""
        self._call(self._run.signal(signal, value, dedup=dedup, timeout=timeout))

    def resume(self, value: Any = None, *, timeout: float = LOCK_PATIENCE_S) -> None:
        """Answer a halt, or let a paused run go on."""
        self._call(self._run.resume(value, timeout=timeout))

    def cancel(self, reason: str = "cancelled", *, timeout: float = LOCK_PATIENCE_S) -> None:
        """Ask the run to stop: its code sees CancelledError, and what it did is compensated."""
        self._call(self._run.cancel(reason, timeout=timeout))

    @overload
    def query(self, query: Query[V]) -> V: ...
    @overload
    def query(self, query: str, type: Any = Any) -> Any: ...
    def query(self, query: Any, type: Any = Any) -> Any:
        """What the workflow has last published under a name."""
        return self._call(self._run.query(query, type))

    @overload
    def update(self, update: Update[V, R], value: V, **options: Any) -> R: ...
    @overload
    def update(self, update: str, value: Any = None, type: Any = Any, **options: Any) -> Any: ...
    def update(self, update: Any, value: Any = None, type: Any = Any, **options: Any) -> Any:
        """Ask the run for something and wait for its answer; see `outlast.RunHandle.update`."""
        return self._call(self._run.update(update, value, type, **options))


class TransactionClient:
    """What `App.on` gives: the app inside a transaction of yours, as `outlast.App.on` does it."""

    def __init__(self, call: RunBlocking, enlisted: AsyncEnlisted) -> None:
        self._call = call
        self._enlisted = enlisted

    @overload
    def start(self, call: Call[R], **options: Unpack[StartOptions]) -> RunHandle[R]: ...
    @overload
    def start(
        self,
        call: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> RunHandle[Any]: ...
    def start(self, call: Any, *args: Any, **options: Any) -> RunHandle[Any]:
        """Start a run with the transaction."""
        mark_used(call)
        return RunHandle(self._call, self._call(self._enlisted.start(call, *args, **options)))

    def signal(
        self, run_id: str, name: str, value: Any = None, *, dedup: str | None = None
    ) -> None:
        """Send a signal with the transaction."""
        self._call(self._enlisted.signal(run_id, name, value, dedup=dedup))

    def cancel(self, run_id: str, reason: str = "cancelled") -> None:
        """Ask a run to stop, with the transaction."""
        self._call(self._enlisted.cancel(run_id, reason))
