"""TaskPoller: when to poll queues for tasks: at a wake-up, when a task becomes ready, and from time to time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from outlast.engine.runner.poll_loop import NextPoll, PollLoop
from outlast.errors import Unsupported
from outlast.model.commit_rules import WakeupKind
from outlast.ports.queue import Queue

SHORTEST_PAUSE_S = 0.01


class TaskPoller:
    """Calls `take`, which takes tasks of the queues in `names` and returns whether it got any, until it gets none;
    then it waits until there may be more or, if this process `is_full`, until there is room again."""

    def __init__(
        self,
        loop: PollLoop,
        queue: Queue,
        names: Sequence[str],
        take: Callable[[], Awaitable[bool]],
        *,
        timeout_s: float,
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = loop
        self._queue = queue
        self._names = names
        self._take = take
        self._timeout_s = timeout_s
        self._is_full = is_full

    def start(self) -> None:
        """Start to poll, until the loop is stopped."""
        self._loop.start(self._poll)

    async def _poll(self) -> NextPoll | None:
        if await self._take():
            return None
        # There is no wake-up when a delayed task becomes ready, a lease expires or a rate allows more.
        due = await self._queue.next_ready_at(self._names, timeout=self._timeout_s)
        pause_s = self._loop.pause_until(due, shortest_s=SHORTEST_PAUSE_S)
        # Where there is a policy, or was no room, any end of a run or a task may let another one start.
        waits_for_any = self._is_full() or await self._has_policies()
        return NextPoll(pause_s, WakeupKind.ANY if waits_for_any else WakeupKind.TASKS)

    async def _has_policies(self) -> bool:
        try:
            return bool(await self._queue.policies(timeout=self._timeout_s))
        except Unsupported:
            return False
