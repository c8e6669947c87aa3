"""TransactionClient: an app inside a transaction of the user's.

::

    async with session.begin():
        session.add(Order(id="o-1"))
        await app.on(session).start(order("o-1"), id="o-1")   # both, or neither

Runs, signals and tasks are there for others when the transaction is committed, and never were if it is
rolled back. Nobody can drive a run before that, so it begins with whoever claims it first afterwards.
"""

from __future__ import annotations

from typing import Any

from outlast.client.client import Client
from outlast.client.handle import RunHandle
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.ports.codec import Codec
from outlast.ports.store import Store


class TransactionClient(Client):
    """What `App.on` gives: all that a client can do, within the transaction. The handles that it gives
    are the app's, for when the transaction is committed."""

    _conflicts = ("attach", "fail")

    def __init__(
        self,
        app: Client,
        store: Store,
        *,
        codec: Codec,
        workflows: dict[str, WorkflowDefinition],
    ) -> None:
        super().__init__(store, codec=codec, workflows=workflows)
        self._app = app

    def _handle(self, run_id: str) -> RunHandle[Any]:
        return RunHandle(self._app, run_id)

    async def expect_queued(self) -> None:
        await self._app.expect_queued()
