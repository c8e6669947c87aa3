"""Store: the port with everything that is written once over it. Adapters subclass this."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from outlast.errors import Unsupported
from outlast.ports.derived import DetailMethods, HistoryMethods, RecordMethods
from outlast.ports.queue import Queue


class Store(HistoryMethods, RecordMethods, DetailMethods):
    """An event-sourced, fenced, crash-safe store of runs.

    Implement the abstract methods of `outlast.ports.core` and you have one; declare in
    `capabilities` what you implement of `outlast.ports.optional`. Certify it with
    `outlast.testkit.conformance`.
    """

    plain_transactions: bool = False
    """Whether the connection that `transaction` gives is for plain steps, in threads; else it is for
    async ones."""

    batches_at_once: int = 1
    """How many batches of commits, of other runs each, it is worth being given at the same time: one
    where they would only wait for each other, as on a file."""

    def queue(self) -> Queue:
        """The queue that lives in the same database, so that tasks are part of a commit."""
        raise Unsupported(f"{type(self).__name__} has no queue of its own: pass one to the app")

    def sibling(self) -> Store | None:
        """A second handle on the same place, with the same idea of time, that another thread may
        use in an event loop of its own while this one is at work or blocked. It is opened and
        closed by itself. None if there is no such thing, as on connections that were passed in."""
        return None

    def transaction(self) -> AbstractAsyncContextManager[tuple[Any, Store]]:
        """A transaction on the store's own database, for a transactional step: a connection for
        the user's data, and this store on that connection. It is committed when the context ends,
        and rolled back if that ends in an error."""
        raise Unsupported(
            f"{type(self).__name__} has no transactions for steps: use PostgreSQL, or pass "
            "`step_info().idempotency_key` on to what the step calls"
        )

    def on(self, connection: Any) -> Store:
        """This store inside a transaction of the user's: starts, signals and tasks are committed, or
        not, with their data."""
        raise Unsupported(
            f"{type(self).__name__} cannot join a transaction of yours: use PostgreSQL or SQLite, in "
            "the database where your data is"
        )

    async def settle(self) -> None:
        """Of a store on a transaction: write what waits for its COMMIT, so that what is wrong with it
        is an error here, and not of the COMMIT, of which nobody would know whether it happened."""
