"""What an app hands out: a run by its id, and itself inside a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar, Unpack, overload

from outlast.call import Call, mark_used
from outlast.client import Client as AsyncClient
from outlast.client import RunHandle as AsyncRunHandle
from outlast.client import RunView
from outlast.client import TransactionClient as AsyncEnlisted
from outlast.client.client import StartOptions
from outlast.messages import Query, Signal, Update
from outlast.model.event import Event
from outlast.model.query import Page
from outlast.model.run_contents import Activity, Entry
from outlast.ports.store_methods import LOCK_PATIENCE_S
from outlast.query import Count
from outlast.sync.schedules import Schedules

R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")
List = list  # in a class that has a method `list`


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
        self.is_new = run.is_new
        """Whether the `start` that returned this handle has created the run."""

    def result(self, *, timeout: float | timedelta | None = None) -> T:
        """Wait for the run to end and give its result."""
        return self._call(self._run.result(timeout=timeout))

    def status(self) -> RunView:
        """How the run stands now; see `outlast.RunHandle.status`."""
        return self._call(self._run.status())

    def history(self) -> list[Event]:
        """All events of the run."""
        return self._call(self._run.history())

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """The events after a sequence, one by one; see `outlast.RunHandle.events`."""
        return iterate(self._call, self._run.events(after=after, follow=follow))

    def entries(self) -> list[Entry]:
        """The audit of the run."""
        return self._call(self._run.entries())

    def activities(self) -> list[Activity]:
        """The state of each step of the run."""
        return self._call(self._run.activities())

    def pause(self, *, timeout: float | timedelta = LOCK_PATIENCE_S) -> None:
        """Stop the run where it is until it is resumed."""
        self._call(self._run.pause(timeout=timeout))

    def terminate(
        self, reason: str = "terminated", *, timeout: float | timedelta = LOCK_PATIENCE_S
    ) -> None:
        """End the run now; see `outlast.RunHandle.terminate`."""
        self._call(self._run.terminate(reason, timeout=timeout))

    def delete(
        self,
        *,
        uid: str | None = None,
        force: bool = False,
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> bool:
        """Remove the run and all it owns; see `outlast.RunHandle.delete`."""
        return self._call(self._run.delete(uid=uid, force=force, timeout=timeout))

    def retry(self, *, timeout: float | timedelta | None = 30.0) -> RunHandle[T]:
        """Continue a failed run from the step that failed; see `outlast.RunHandle.retry`."""
        return RunHandle(self._call, self._call(self._run.retry(timeout=timeout)))

    def fork(
        self,
        step: str,
        *,
        id: str | None = None,
        input: dict[str, Any] | None = None,
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> RunHandle[T]:
        """Start a new run with the history of this one up to a step; see `outlast.RunHandle.fork`."""
        forked = self._run.fork(step, id=id, input=input, timeout=timeout)
        return RunHandle(self._call, self._call(forked))

    def signal(
        self,
        signal: str | Signal[Any],
        value: Any = None,
        *,
        dedup: str | None = None,
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> None:
        """Send a signal; with `dedup`, once however often this is called. `Busy` if a transaction, of
        yours maybe, has locked the run for `timeout` seconds: so it is for `resume` and `cancel`."""
        self._call(self._run.signal(signal, value, dedup=dedup, timeout=timeout))

    def resume(self, value: Any = None, *, timeout: float | timedelta = LOCK_PATIENCE_S) -> None:
        """Answer a halt, or let a paused run go on."""
        self._call(self._run.resume(value, timeout=timeout))

    def cancel(
        self, reason: str = "cancelled", *, timeout: float | timedelta = LOCK_PATIENCE_S
    ) -> None:
        """Ask the run to stop: its code sees CancelledError, and what it did is compensated."""
        self._call(self._run.cancel(reason, timeout=timeout))

    @overload
    def query(self, query: Query[V]) -> V: ...
    @overload
    def query(self, query: str, type: Any = Any) -> Any: ...
    def query(self, query: Any, type: Any = Any) -> Any:
        """What the workflow last published under a name."""
        return self._call(self._run.query(query, type))

    @overload
    def update(self, update: Update[V, R], value: V, **options: Any) -> R: ...
    @overload
    def update(self, update: str, value: Any = None, type: Any = Any, **options: Any) -> Any: ...
    def update(self, update: Any, value: Any = None, type: Any = Any, **options: Any) -> Any:
        """Send an update and wait for the answer; see `outlast.RunHandle.update`."""
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

    def get(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run, which acts within the transaction."""
        return RunHandle(self._call, self._enlisted.get(run_id))


class Client:
    """What `App.client` gives: runs found, and the schedules."""

    def __init__(self, call: RunBlocking, client: Callable[[], AsyncClient]) -> None:
        self._call = call
        self._client = client

    def get(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that was started earlier or elsewhere."""
        return RunHandle(self._call, self._client().get(run_id))

    def find(self, query: str = "", **filters: Any) -> List[RunView]:
        """Runs that match, newest first; see `outlast.Client.find`."""
        return list(iterate(self._call, self._client().find(query, **filters)))

    def list(self, query: str = "", *, limit: int = 100, after: str | None = None) -> Page[RunView]:
        """A page of the runs that match; see `outlast.Client.list`."""
        return self._call(self._client().list(query, limit=limit, after=after))

    def count(self, query: str = "") -> Count:
        """How many runs match; see `outlast.Client.count`."""
        return self._call(self._client().count(query))

    @property
    def schedules(self) -> Schedules:
        """What is started by the clock."""
        return Schedules(self._call, lambda: self._client().schedules)


def iterate(call: RunBlocking, found: AsyncIterator[T]) -> Iterator[T]:
    """What an async iterator gives, one by one."""

    async def step() -> tuple[T] | None:
        async for one in found:
            return (one,)
        return None

    while (item := call(step())) is not None:
        yield item[0]
