"""A mover that is killed with `kill -9` before one of its writes, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from outlast.ports.store import Store
from outlast.testkit.wrapped_store import WrappedStore
from outlast.transfer import MoveResult, move
from tests.unit.transfer.places import store_at

T = TypeVar("T")
WRITES = {"commit", "send", "remember", "release", "claim_task", "skip_tokens", "delete", "renew"}


class Countdown:
    """How many writes are left to somebody's life."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.made = 0

    def tick(self) -> None:
        """A write is about to be made."""
        self.made += 1
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Mortal(WrappedStore):
    """A store whose user dies before one of its writes."""

    def __init__(self, inner: Store, life: Countdown) -> None:
        super().__init__(inner)
        self._life = life

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if name in WRITES:
            self._life.tick()
        return await call()


async def move_mortally(source: str, target: str, query: str = "", *, life: int = -1) -> int:
    """Move, and die before the write of that number; how many writes it took."""
    count = Countdown(life)
    async with store_at(source) as old, store_at(target) as new:
        moves = await move(Mortal(old, count), Mortal(new, count), query, address=target)
    assert moves.refused == {}, moves.refused
    return count.made


def killed(source: str, target: str, life: int) -> bool:
    """The same in a process of its own; whether it was killed before it was done."""
    with warnings.catch_warnings():
        # From 3.12 on Python warns where there are threads; the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(move_mortally(source, target, life=life))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the mover failed, see its traceback"
    return False


async def move_whole(source: str, target: str) -> MoveResult:
    """Move to the end."""
    async with store_at(source) as old, store_at(target) as new:
        moves = await move(old, new, address=target)
    assert moves.refused == {}, moves.refused
    return moves
