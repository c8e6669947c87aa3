"""Looking for tasks, for ever: when somebody sends a wake-up, when it is time, and now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from outlast.engine.runner.leases import raise_if_cancelled
from outlast.errors import Closed, StoreFault, TryAgain, Unsupported
from outlast.model.commit_rules import WakeupKind
from outlast.ports.clock import look_again_after
from outlast.ports.notifier import hears_all
from outlast.ports.queue import Queue
from outlast.ports.store import Store

IDLE_SECONDS = 1.0
LISTENING_SECONDS = 5.0
SHORTEST_PAUSE = 0.01
log = logging.getLogger("outlast.worker")


async def look_for_ever(
    store: Store,
    queue: Queue,
    names: Sequence[str],
    look: Callable[[], Awaitable[bool]],
    *,
    patience: float,
    is_full: Callable[[], bool] = lambda: False,
) -> None:
    """Call `look`, which takes tasks of the queues in `names` and says whether it found any, as long as
    it does; then wait until there may be more, or, if this process `is_full`, there is room again.
    A question to the queue may take `patience` seconds."""
    clock, notifier = store.clock, store.notifier
    kind = WakeupKind.ANY
    while True:
        wakeups = {kind: notifier.wakeups_for(kind) for kind in (WakeupKind.ANY, WakeupKind.TASKS)}
        seconds = LISTENING_SECONDS if hears_all(notifier) else IDLE_SECONDS
        pause = look_again_after(clock, seconds)
        try:
            if await look():
                continue
            # Nobody sends a wake-up when a delayed task comes due, a lease ends or a rate allows more.
            due = await queue.next_ready_at(names, timeout=patience)
            now = clock.now()
            if due is not None:
                # What is due could not be had, or has come due since, or is due by our clock only:
                # that is looked for soon, and then ever more rarely.
                pause = max(min(pause, abs((due - now).total_seconds())), SHORTEST_PAUSE)
            # Where there are rules, and where there was no room, what ends lets something begin.
            ruled = is_full() or await _has_rules(queue, patience)
            kind = WakeupKind.ANY if ruled else WakeupKind.TASKS
        except (TryAgain, StoreFault, asyncio.CancelledError) as error:
            raise_if_cancelled()
            log.warning("taking tasks failed, trying again: %s", error)
        except Closed:
            raise
        except Exception:
            log.exception("taking tasks failed in an unforeseen way, trying again")
        await notifier.wait(clock, pause, since=wakeups[kind], kind=kind)


async def _has_rules(queue: Queue, patience: float) -> bool:
    try:
        return bool(await queue.policies(timeout=patience))
    except Unsupported:
        return False  # a queue that knows none has none
