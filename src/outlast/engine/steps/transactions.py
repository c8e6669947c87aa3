"""A transactional step: its effects on the database and its completion are one transaction.

::

    BEGIN ── the user's statements ── commit(token, outcome to the run's own inbox) ── COMMIT

The last statement is fenced by the run's claim: a process whose claim was superseded rolls back. If the process crashes
after the COMMIT, the outcome is in the inbox, and the next owner of the run reads it before any step is tried again; if
it crashes before, the transaction has had no effect.

A lock on the run is waited for. Its holder may itself wait for rows that the step has locked, a deadlock that the
database cannot detect. So after `LOCK_PATIENCE_S` the step is rolled back, which frees the holder, and the same attempt
is made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from msgspec import Raw

from outlast.engine.operations.step import StepCall, StepReport
from outlast.engine.steps.step_executor import Outcome, StepContext, StepExecutor, step_connection
from outlast.errors import Busy, Fenced, TryAgain, UsageError, WorkflowMisuse
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed
from outlast.model.json import to_json
from outlast.model.run_contents import Item, ItemKind, Send
from outlast.ports.store import Store
from outlast.ports.store_methods import LOCK_PATIENCE_S

_logger = logging.getLogger("outlast.engine")

WAIT_SECONDS = 1.0


async def attempt_in_transaction(
    store: Store,
    executor: StepExecutor,
    call: StepCall,
    context: StepContext,
    claim: Callable[[], Claim],
) -> Outcome | int:
    """Execute one attempt under the current `claim`; returns the revision of the run if it was committed, with the
    outcome in the inbox. Raises if it is unknown whether it was."""
    while True:
        try:
            return await _attempt(store, executor, call, context, claim)
        except _Locked as locked:
            if call.step.at_most_once:
                return Outcome(None, locked.busy, 0)
            _logger.warning("step %r was rolled back and is tried again: %s", call.key, locked.busy)
            await store.clock.sleep(WAIT_SECONDS)


async def _attempt(
    store: Store,
    executor: StepExecutor,
    call: StepCall,
    context: StepContext,
    claim: Callable[[], Claim],
) -> Outcome | int:
    failed: Outcome | None = None
    revision = 0
    if call.step.is_async == store.plain_transactions:
        return Outcome(None, _misplaced(call, store), 0)
    try:
        async with AsyncExitStack() as ends:
            connection, borrowed = await _begun(store, ends, call)
            token = step_connection.set(connection)
            try:
                outcome = await executor.attempt(call.step, context, call.args, call.kwargs)
            finally:
                step_connection.reset(token)
            if outcome.error is not None:
                failed = outcome
                raise _RollBack
            try:
                await borrowed.settle()
            except Exception as error:
                # A deferred constraint refuses what the step has written: the step has failed.
                failed = Outcome(None, error, outcome.duration_ns)
                raise _RollBack from error
            revision = await _record(borrowed, call, context.life, outcome, claim)
    except _RollBack:
        assert failed is not None, "only a failed step is rolled back"
        return failed
    except UsageError as refused:  # the COMMIT was answered: it had no effect
        return Outcome(None, refused, 0)
    return revision


async def _begun(store: Store, ends: AsyncExitStack, call: StepCall) -> tuple[Any, Store]:
    """Begin a transaction, once there is a connection for it. The step has not started until then: waiting for other
    steps, or for a server, costs no attempt."""
    while True:
        try:
            return await ends.enter_async_context(store.transaction())
        except TryAgain as error:
            _logger.warning("step %r waits for a transaction: %s", call.step.name, error)
        await store.clock.sleep(WAIT_SECONDS)


async def _record(
    store: Store, call: StepCall, life: str, outcome: Outcome, claim: Callable[[], Claim]
) -> int:
    report = StepReport(
        life=life, attempt=call.attempt, output=outcome.output, duration_ns=outcome.duration_ns
    )
    while True:
        held = claim()
        item = Item(
            kind=ItemKind.STEP,
            name=call.key,
            id=f"{held.uid}/{call.key} in its transaction",
            data=Raw(to_json(report)),
        )
        commit = Commit(
            run_id=held.run_id,
            uid=held.uid,
            token=held.token,
            sends=(Send(run_id=held.run_id, uid=held.uid, item=item),),
        )
        [answer] = await store.commit_when_free([commit], patience=LOCK_PATIENCE_S)
        if isinstance(answer, Committed):
            return answer.revision
        if isinstance(answer, Busy):
            raise _Locked(answer)
        if not isinstance(answer, Fenced) or claim().token == held.token:
            raise answer


def _misplaced(call: StepCall, store: Store) -> WorkflowMisuse:
    kind = "a plain `def`" if store.plain_transactions else "an `async def`"
    return WorkflowMisuse(
        f"step {call.step.name!r} is transactional, so on {type(store).__name__} it has to be {kind}, "
        "because its connection is"
    )


class _RollBack(Exception):
    """Rolls back the transaction of a step that has failed."""


class _Locked(Exception):
    """Rolls back the transaction of a step whose run was locked for too long."""

    def __init__(self, busy: Busy) -> None:
        super().__init__(str(busy))
        self.busy = busy
