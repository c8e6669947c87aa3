"""How a client waits for what a run does elsewhere: its end, or its answer to an update.

The store's notifier says when to look; without one, or if it is silent, the client looks now and
then. A store that is away is asked again until the caller's time is over.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import Raw

from outlast.client.moved_runs import find_here
from outlast.engine.definitions.retry import is_number
from outlast.engine.replay.error_text import with_place
from outlast.errors import InvalidValue, OutlastError, RunFailed, RunParked, TryAgain, UpdateFailed
from outlast.model.asks import asks_in
from outlast.model.event import Event, EventType, payload_of
from outlast.model.json import from_json
from outlast.model.payloads import HaltStarted, UpdateCompleted, WorkflowFailed, WorkflowStarted
from outlast.model.run import Run, Status
from outlast.ports.clock import Clock, look_again_after
from outlast.ports.port import Capability
from outlast.ports.store import Store

POLL_SECONDS = 0.5
LEAST_SECONDS = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
log = logging.getLogger("outlast.client")
T = TypeVar("T")
Ending = Callable[[str], asyncio.Future[Run | None] | None]


async def ended(
    store: Store,
    run_id: str,
    ending: Ending,
    timeout: float | None,
    can_continue: Callable[[Run], bool] = lambda run: False,
) -> Run:
    """The record of a run, once it has ended; TimeoutError if that takes longer, `RunParked` if it is parked and no live
    worker, nor this process (`can_continue`), has code that has not tried it."""
    clock = store.clock
    deadline = _deadline(clock, timeout)
    while True:
        here = ending(run_id)
        left = None if deadline is None else deadline - clock.monotonic()
        if here is not None and (left is None or left > 0):
            await _either(here, None if left is None else clock.sleep(left))
            record = _record_in(here)
            if record is not None:
                return record
        wakeups = store.notifier.wakeups
        run = await _look(clock, deadline, partial(_find, store, run_id))
        if run.status.terminal:
            return run
        if _is_parked(run) and not can_continue(run) and not await _is_left_to_others(store, run):
            raise RunParked(run_id, run.error or "its code cannot continue it")
        patience = look_again_after(clock, POLL_SECONDS)
        left = patience if deadline is None else deadline - clock.monotonic()
        if left <= 0:
            kind = f" ({run.wait_kind})" if run.wait_kind else ""
            asks = "".join([f", it asks {what}" for what in await _asked(store, run)])
            raise TimeoutError(
                f"run {run_id!r} is {run.status}{kind} after {timeout} s{asks}: `outlast why {run_id}` says what "
                "it waits for"
            )
        if ending(run_id) is None:
            await store.notifier.wait(clock, min(left, patience), since=wakeups)


async def _asked(store: Store, run: Run) -> list[str]:
    """What a run asks people, and whom, each as text."""
    found = []
    for ask in asks_in(run.attributes):
        with suppress(OutlastError):  # the store may be away by now: its record says enough
            for event in await store.history(run.id, after=ask.sequence - 1, limit=1):
                asked = payload_of(event)
                if isinstance(asked, HaltStarted) and asked.id == ask.token:
                    title = asked.title or asked.name
                    whom = repr(ask.to) if ask.to else "a person"
                    found.append(f"{whom} {title!r}" if title else f"{whom} a question")
    return found


def _is_parked(run: Run) -> bool:
    """Whether a run waits for other code, and nothing was sent to it that lets a worker try it again."""
    return run.status is Status.HALTED and run.is_parked and run.runnable_at is None


async def _is_left_to_others(store: Store, run: Run) -> bool:
    """Whether a live worker has code that has not tried a parked run."""
    if Capability.WORKERS not in store.capabilities:
        return False
    now = await store.now()
    return any(
        worker.is_alive(now)
        and run.workflow in worker.workflows
        and worker.code
        and worker.code not in run.rejections
        for worker in await store.workers()
    )


async def failure_of(store: Store, run: Run) -> RunFailed:
    """The error of a failed run, whose ``__cause__`` says where it was raised, as its history records it."""
    error = RunFailed(run.id, run.status, run.error or "")
    try:
        events = await store.history(run.id, after=run.sequence - 1)
    except OutlastError:
        return (
            error  # the run may be deleted by now, or its history damaged: its record says enough
        )
    last = payload_of(events[-1]) if events else None
    return with_place(error, last.details if isinstance(last, WorkflowFailed) else [])


async def answered(
    store: Store, run: Run, update_id: str, name: str, *, after: int, timeout: float | None
) -> UpdateCompleted:
    """What a run has answered to an update, looking at its history from `after` on."""
    clock = store.clock
    deadline = _deadline(clock, timeout)
    uid = run.uid
    while True:
        wakeups = store.notifier.wakeups
        run = await _look(clock, deadline, partial(_find, store, run.id))
        if run.uid != uid:
            uid, after = run.uid, 0  # it has continued as new: what it had answered went along
        history = await _look(clock, deadline, partial(_read, store, run.id, after))
        answer = answer_in(history, update_id)
        if answer is not None:
            return answer
        after += len(history)
        if run.status.terminal:
            raise UpdateFailed(run.id, name, f"the run is {run.status} and has not answered it")
        patience = look_again_after(clock, POLL_SECONDS)
        left = patience if deadline is None else deadline - clock.monotonic()
        if left <= 0:
            raise TimeoutError(
                f"update {name!r} of run {run.id!r} has no answer after {timeout} s. It may still "
                "get one: ask again with the same `dedup`, or see whether the workflow has a "
                f"handler, `@outlast.on_update` over `def {name}`"
            )
        await store.notifier.wait(clock, min(left, patience), since=wakeups)


def answer_in(history: Iterable[Event], update_id: str) -> UpdateCompleted | None:
    """What history has as the answer to an update; its beginning has those of earlier lives."""
    for event in history:
        answers: list[Raw] = []
        if event.type == EventType.UPDATE_COMPLETED:
            answers.append(event.data)
        elif event.type == EventType.WORKFLOW_STARTED:
            started = payload_of(event)
            answers += started.answers if isinstance(started, WorkflowStarted) else ()
        for data in answers:
            answer = from_json(data, UpdateCompleted, where=f"an answer of run {event.run_id!r}")
            if answer.update_id == update_id:
                return answer
    return None


async def _find(store: Store, run_id: str, within: float | None) -> Run:
    return await find_here(store, run_id, timeout=within)


async def _read(store: Store, run_id: str, after: int, within: float | None) -> list[Event]:
    return await store.history(run_id, after=after, timeout=within)


async def _look(
    clock: Clock, deadline: float | None, read: Callable[[float | None], Awaitable[T]]
) -> T:
    """The result of `read`, which gets a timeout; retried while the store is unreachable, until
    `deadline`."""
    pause = FIRST_PAUSE_S
    while True:
        try:
            return await read(_look_within(clock, deadline))
        except (TryAgain, OSError) as error:
            if deadline is not None and clock.monotonic() + pause >= deadline:
                raise
            log.warning("the store did not answer, asking again: %s", error)
            await clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


def _deadline(clock: Clock, timeout: float | None) -> float | None:
    """When to wait no longer; None for never."""
    if timeout is None or timeout == math.inf:
        return None
    if not is_number(timeout):
        raise InvalidValue(f"timeout={timeout!r}: use seconds, or None to wait for ever")
    return clock.monotonic() + timeout


def _look_within(clock: Clock, deadline: float | None) -> float | None:
    """How long a look may take for someone who waits until `deadline`: a store that does not answer
    must not keep them, one that is asked at the last moment needs a moment."""
    return None if deadline is None else max(deadline - clock.monotonic(), LEAST_SECONDS)


def _record_in(here: asyncio.Future[Run | None]) -> Run | None:
    """The record of a run that has ended in this process, if that is what has happened."""
    if not here.done() or here.cancelled() or here.exception() is not None:
        return None
    return here.result()


async def _either(here: asyncio.Future[Any], limit: Coroutine[Any, Any, None] | None) -> None:
    """Wait until a run leaves this process, or a time has passed."""
    if limit is None:
        # What `asyncio.wait` does for many; every run that is waited for comes through here.
        left = asyncio.get_running_loop().create_future()

        def tell(_: asyncio.Future[Any]) -> None:
            if not left.done():
                left.set_result(None)

        here.add_done_callback(tell)
        try:
            await left
        finally:
            here.remove_done_callback(tell)
        return
    sleeping = asyncio.ensure_future(limit)
    try:
        await asyncio.wait((here, sleeping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
