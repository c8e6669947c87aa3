"""TransactionClient: an app inside a transaction of the user's.

::

    async with session.begin():
        session.add(Order(id="o-1"))
        await app.on(session).start(order, "o-1", id="o-1")   # both, or neither

Runs, signals and tasks are there for others when the transaction is committed, and never were if it is
rolled back. Nobody can drive a run before that, so it begins with whoever claims it first afterwards.
"""

from __future__ import annotations

from typing import Any, TypeVar

from outlast.client.handle import RunHandle
from outlast.client.start import StartMany
from outlast.decorators import Workflow
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.errors import InvalidValue
from outlast.model.queue_options import QueueOptions
from outlast.model.run import Attribute
from outlast.ports.codec import Codec
from outlast.ports.store import Store

R = TypeVar("R")


class TransactionClient(StartMany):
    """What `App.on` gives: all that a client can do, within the transaction. The handles that it gives
    are the app's, for when the transaction is committed."""

    def __init__(
        self,
        app: StartMany,
        store: Store,
        *,
        codec: Codec,
        workflows: dict[str, WorkflowDefinition],
    ) -> None:
        super().__init__(store, codec=codec, workflows=workflows)
        self._app = app

    async def start(
        self,
        workflow: Workflow[..., R],
        *args: Any,
        id: str | None = None,
        on_conflict: str = "attach",
        attributes: dict[str, Attribute] | None = None,
        queue: str | QueueOptions | None = None,
        **kwargs: Any,
    ) -> RunHandle[R]:
        """Start a run with the transaction; the id is the idempotency key. When it is taken,
        ``attach`` gives the run that is there if it is the same workflow with the same input, and
        raises `RunExists` otherwise; ``fail`` always raises. The transaction stays as it was."""
        if on_conflict not in ("attach", "fail"):
            raise InvalidValue(f"on_conflict={on_conflict!r}: in a transaction, use attach or fail")
        begun = await self.begin(
            workflow,
            *args,
            id=id,
            on_conflict=on_conflict,
            attributes=attributes,
            queue=queue,
            **kwargs,
        )
        return RunHandle(self._app, begun.id)

    async def expect_queued(self) -> None:
        await self._app.expect_queued()
