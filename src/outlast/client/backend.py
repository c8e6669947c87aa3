"""Backend: what a client and its handles share: the store, the codec, the code that is here.

The backend of an app adds its engine: runs start in this process, and messages wake them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from outlast.client.moved_runs import find_here, send_here, unless_moved
from outlast.client.results import ended
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.replay.commit_builder import NewRun
from outlast.engine.replay.execution import current_execution
from outlast.errors import Fenced, NotFound, RunClosed, WorkflowMisuse
from outlast.messages import Signal, Update
from outlast.model.commit import Commit, Outcome
from outlast.model.ids import check_name
from outlast.model.run import Run
from outlast.model.run_contents import Item, Receipt
from outlast.ports.codec import Codec
from outlast.ports.custom_engine import accepted
from outlast.ports.store import Store
from outlast.ports.store_methods import LOCK_PATIENCE_S


class Backend:
    """Reads and writes runs through a store. It needs no workflow code: `workflows` has what is here."""

    def __init__(
        self, store: Store, codec: Codec, workflows: Mapping[str, WorkflowDefinition] | None = None
    ) -> None:
        self._given_store = store
        self.codec = codec
        self.workflows = workflows or {}

    @property
    def store(self) -> Store:
        """The store; an error in workflow code, where each replay would repeat the call."""
        if current_execution() is not None:
            raise WorkflowMisuse(
                "workflow code called its app: what that does would be done again in every replay. "
                "Await the call of another workflow for a child run, or put this into a step"
            )
        return self._given_store

    # -- the engine, if this process has one --------------------------------------------------

    def wake(self, run_id: str) -> None:
        """A message was sent to a run: the engine reads it at once."""

    def drop(self, run_id: str) -> None:
        """A run was ended from outside: the engine stops it."""

    def ending(self, run_id: str) -> asyncio.Future[Run | None] | None:
        """The end of a run that the engine drives; None if it does not."""
        return None

    def can_continue(self, run: Run) -> bool:
        """Whether the engine has code that may continue a parked run."""
        return False

    async def expect_queued(self) -> None:
        """Something is about to wait in a queue: a worker in this process polls that queue."""

    async def create(self, new: NewRun) -> None:
        """Write a new run, for any worker that has its code; `RunExists` if its id is taken."""
        await self.write(new.commit())

    # -- waiting ------------------------------------------------------------------------------

    async def ended(self, run_id: str, timeout: float | None) -> Run:
        """The record of a run when it has ended; `TimeoutError` after `timeout` seconds."""
        return await ended(self.store, run_id, self.ending, timeout, self.can_continue)

    def check_may_wait(self) -> None:
        """Called before a caller waits for an answer of a run: raises where none could come."""

    # -- reading and writing ------------------------------------------------------------------

    async def record(self, run_id: str) -> Run:
        """The record of a run; `Moved` if it is in another store, `NotFound` if it does not exist."""
        return await find_here(self.store, run_id)

    def message(
        self, message: str | Signal[Any] | Update[Any, Any], value: Any, kind: str
    ) -> tuple[str, Raw]:
        """The name and the encoded value of a message. The value of a declared one is checked against its type."""
        if isinstance(message, Signal | Update):
            where = f"{kind} {message.name!r}"
            return message.name, self.codec.encode(value, message.type, where=where)
        name = check_name(message, f"{kind} name")
        return name, self.codec.encode_untyped(value, where=f"{kind} {name!r}")

    async def send(
        self,
        run_id: str,
        *items: Item,
        uid: str | None = None,
        timeout: float = LOCK_PATIENCE_S,
    ) -> list[Receipt]:
        """Send items to the inbox of a run; with `uid` only to that life of it."""
        receipts = await send_here(self.store, run_id, *items, uid=uid, patience=timeout)
        self.wake(run_id)
        return receipts

    async def write(self, commit: Commit, *, timeout: float = LOCK_PATIENCE_S) -> None:
        """Write a commit; a refusal is raised."""
        outcome = await self.attempt(commit, timeout=timeout)
        if isinstance(outcome, NotFound | RunClosed | Fenced):
            await unless_moved(self.store, commit.run_id)
        accepted(outcome)

    async def attempt(self, commit: Commit, *, timeout: float = LOCK_PATIENCE_S) -> Outcome:
        """The outcome of a commit; `Busy` if its run was locked for `timeout` seconds."""
        (outcome,) = await self.store.commit_when_free([commit], patience=timeout)
        return outcome
