"""Runs that were moved to another store: a call about one raises `Moved` with its new address.

A run may come back, also between two reads. It leaves one record behind, a tombstone, which looks like a run that has
ended; a refusal because of the tombstone is not a refusal by the run. So no error is derived from two reads: what one
read shows is raised, or the call is tried again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from outlast.errors import Busy, Fenced, Moved, NotFound, RunClosed, Undecodable
from outlast.model.commit import Refusal
from outlast.model.ids import root_of
from outlast.model.run import Run
from outlast.model.run_contents import Item, Receipt, Send
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.ports.store_methods import LOCK_PATIENCE_S, lock_backoff, locked

T = TypeVar("T")

TRIES = 10
"""How often a run can come between two looks: it has to come and go each time."""


async def find_here(store: Store, run_id: str, *, timeout: float | None = None) -> Run:
    """The record of a run; `Moved` if it goes on elsewhere, `NotFound` if it does not exist."""
    run = await store.find_one(run_id, timeout=timeout)
    if run is None and root_of(run_id) != run_id:
        await unless_moved(store, run_id, timeout=timeout)
        run = await store.find_one(run_id, timeout=timeout)  # its tree may have come just now
    if run is None:
        raise NotFound("run", run_id)
    if run.moved_to is not None:
        raise Moved(run_id, run.moved_to)
    return run


async def unless_moved(store: Store, run_id: str, *, timeout: float | None = None) -> None:
    """Raise `Moved` if a run, or the tree that it belonged to, goes on elsewhere."""
    with suppress(Undecodable):  # a damaged record has not been moved
        for id in dict.fromkeys((run_id, root_of(run_id))):
            run = await store.find_one(id, timeout=timeout)
            if run is not None and run.moved_to is not None:
                raise Moved(run_id, run.moved_to)


async def has_come(store: Store, run_id: str, refusal: Refusal) -> bool:
    """Whether a run that was refused, because it had ended or was not there, is there and open now;
    `Moved` if it goes on elsewhere."""
    if not isinstance(refusal, NotFound | RunClosed | Fenced):
        return False
    with suppress(NotFound, Undecodable):
        return not (await find_here(store, run_id)).status.terminal
    return False


async def send_here(
    store: Store,
    run_id: str,
    *items: Item,
    uid: str | None = None,
    patience: float = LOCK_PATIENCE_S,
) -> list[Receipt]:
    """Send items to a run; `Moved` if it goes on elsewhere, `Busy` if it was locked for `patience`
    seconds, and the store's refusal if it has ended or is unknown. Sent again, they are taken once. With `uid` only
    that life receives them."""
    sends = [Send(run_id=run_id, item=item, uid=uid) for item in items]
    deadline = store.clock.monotonic() + patience

    async def send() -> list[Receipt] | Refusal:
        receipts = []
        for outcome in await store.send(sends):
            if isinstance(outcome, Busy):
                raise outcome
            if not isinstance(outcome, Receipt):
                return outcome
            receipts.append(outcome)
        return receipts

    for _ in range(TRIES):
        refusal = await when_free(store.clock, send, deadline, patience)
        if isinstance(refusal, list):
            return refusal
        if isinstance(refusal, Fenced):  # another life than the one that was meant
            raise refusal
        if not await has_come(store, run_id, refusal):
            raise refusal
    raise coming_and_going(run_id)


async def when_free(
    clock: Clock, call: Callable[[], Awaitable[T]], deadline: float, patience: float
) -> T:
    """What a call gives that may be repeated, once no other transaction is in its way."""
    backoff = lock_backoff()
    while True:
        try:
            return await call()
        except Busy as busy:
            left = deadline - clock.monotonic()
            if left <= 0:
                raise locked(busy, patience) from busy
            await clock.sleep(min(backoff.next_s(), left))


def coming_and_going(run_id: str) -> Busy:
    """What to tell of a run that is never there when something is to be done to it."""
    return Busy(f"run {run_id!r} is moved to and fro all the time: try again")
