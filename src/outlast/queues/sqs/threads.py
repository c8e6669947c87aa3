"""Blocking calls in threads that nobody waits for when the process ends.

A call of SQS that hangs may do so for minutes, and Python joins the threads of its own executors before
it exits: a worker that was told to stop would not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from outlast.errors import Unavailable

T = TypeVar("T")


def begin(work: Callable[[], object]) -> None:
    """Do something in a thread of its own, and forget it. `Unavailable` if there is no room for one."""
    try:
        threading.Thread(target=work, name="outlast-sqs", daemon=True).start()
    except RuntimeError as error:
        raise Unavailable(
            f"there is no room for another thread, nothing was begun: {error}"
        ) from None


async def in_thread(work: Callable[[], T]) -> T:
    """What a function returns that blocks. Who is cancelled leaves it alone there."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def hand_over(value: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as failure:  # noqa: BLE001 - whoever waits must not wait for ever
            error = failure
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(hand_over, value, error)

    begin(run)
    return await answer
