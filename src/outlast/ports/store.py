"""Store: the whole port. Adapters subclass it.

::

    StoreCore            commit, find_one, history, claim_runs, renew, release   ports/core.py
    └─ OptionalMethods   what the engine uses of capabilities                    ports/optional.py
       └─ LockMethods    commits that wait for locks                             ports/derived.py
          ├─ HistoryMethods    histories and searches, written once              ports/derived.py
          └─ OwnEngineMethods  for engines of your own, not for outlast's        ports/own_engines.py
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from outlast.errors import Unsupported
from outlast.ports.derived import HistoryMethods
from outlast.ports.own_engines import OwnEngineMethods
from outlast.ports.queue import Queue


class Store(HistoryMethods, OwnEngineMethods):
    """An event-sourced, fenced, crash-safe store of runs.

    Implement the abstract methods of `outlast.ports.core`, declare in `capabilities` what else you
    implement, and certify the store with `outlast.testkit.conformance`.
    """

    plain_transactions: bool = False
    """Whether the connection that `transaction` gives is for plain steps, in threads. Otherwise it is
    for async steps."""

    batches_at_once: int = 1
    """How many batches of commits, of different runs, the store processes concurrently. 1 where
    batches only wait for each other, as on a file."""

    def queue(self) -> Queue:
        """The queue in the same database: its tasks are part of a commit."""
        raise Unsupported(f"{type(self).__name__} has no queue of its own: pass one to the app")

    def sibling(self) -> Store | None:
        """A second store on the same database and clock, for the event loop of another thread, which
        works while this loop is blocked. It is opened and closed by itself. None if the store cannot
        connect by itself, as on connections that the user passed in."""
        return None

    def transaction(self) -> AbstractAsyncContextManager[tuple[Any, Store]]:
        """A transaction on the store's own database, for a transactional step: a connection for the
        user's data, and this store on that connection. Committed at the end of the context, rolled
        back if that ends in an error."""
        raise Unsupported(
            f"{type(self).__name__} has no transactions for steps: use PostgreSQL, or pass "
            "`step_info().idempotency_key` on to what the step calls"
        )

    def on(self, connection: Any) -> Store:
        """This store inside a transaction of the user's: starts, signals and tasks are committed with
        the user's data, or not at all."""
        raise Unsupported(
            f"{type(self).__name__} cannot join a transaction of yours: use PostgreSQL or SQLite, in "
            "the database where your data is"
        )

    async def settle(self) -> None:
        """On a store inside a transaction: write what was deferred to the COMMIT, so that an error is
        raised here. An error of the COMMIT itself would leave the outcome unknown."""
