"""RunHandle: a run as a program holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from outlast._public import public
from outlast.messages import Query, Signal, Update
from outlast.model.run import Status
from outlast.ports.store_methods import LOCK_PATIENCE_S

if TYPE_CHECKING:
    from outlast.client.run_actions import RunActions

T = TypeVar("T")
V = TypeVar("V")
A = TypeVar("A")


@public
class RunHandle(Generic[T]):
    """A run, by id: what a program holds of it."""

    def __init__(self, client: RunActions, id: str) -> None:
        self._client = client
        self.id = id

    async def result(self, *, timeout: float | None = None) -> T:
        """Wait for the run to end and give its result; `RunFailed` or `RunCancelled` if it has
        none, `TimeoutError` if it takes longer."""
        value: T = await self._client.result(self.id, timeout=timeout)
        return value

    async def status(self) -> Status:
        """Where the run stands."""
        return (await self._client.get(self.id)).status

    @overload
    async def signal(
        self, signal: Signal[None], *, dedup: str | None = None, timeout: float = LOCK_PATIENCE_S
    ) -> None: ...
    @overload
    async def signal(
        self,
        signal: Signal[V],
        value: V,
        *,
        dedup: str | None = None,
        timeout: float = LOCK_PATIENCE_S,
    ) -> None: ...
    @overload
    async def signal(
        self,
        signal: str,
        value: Any = None,
        *,
        dedup: str | None = None,
        timeout: float = LOCK_PATIENCE_S,
    ) -> None: ...
    async def signal(
        self,
        signal: str | Signal[Any],
        value: Any = None,
        *,
        dedup: str | None = None,
        timeout: float = LOCK_PATIENCE_S,
    ) -> None:
        """Send a signal; with `dedup`, once however often this is called. `Busy` if a transaction, of
        yours maybe, has locked the run for `timeout` seconds: so it is for `resume` and `cancel`."""
        await self._client.signal(self.id, signal, value, dedup=dedup, timeout=timeout)

    async def resume(self, value: Any = None, *, timeout: float = LOCK_PATIENCE_S) -> None:
        """Answer a halt, or let a paused run go on."""
        await self._client.resume(self.id, value, timeout=timeout)

    async def cancel(self, reason: str = "cancelled", *, timeout: float = LOCK_PATIENCE_S) -> None:
        """Ask the run to stop: its code sees CancelledError, and what it did is compensated."""
        await self._client.cancel(self.id, reason, timeout=timeout)

    @overload
    async def query(self, query: Query[V]) -> V: ...
    @overload
    async def query(self, query: str, type: Any = Any) -> Any: ...
    async def query(self, query: str | Query[Any], type: Any = Any) -> Any:
        """What the workflow has last published under a name."""
        return await self._client.query(self.id, query, type)

    @overload
    async def update(
        self,
        update: Update[V, A],
        value: V,
        *,
        dedup: str | None = None,
        timeout: float | None = None,
    ) -> A: ...
    @overload
    async def update(
        self,
        update: str,
        value: Any = None,
        type: Any = Any,
        *,
        dedup: str | None = None,
        timeout: float | None = None,
    ) -> Any: ...
    async def update(
        self,
        update: str | Update[Any, Any],
        value: Any = None,
        type: Any = Any,
        *,
        dedup: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Ask the run for something (`outlast.on_update`) and wait for its answer."""
        return await self._client.update(self.id, update, value, type, dedup=dedup, timeout=timeout)

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"
