"""Doorbell: how processes tell each other, past the store, that looking may be worth it.

A doorbell is something outside the store: a queue of a cloud, a broker that is there already. It
carries no work and knows of none. A message says "look"; what there is to do, the store says. So a
message may be lost, doubled, late, stale or overtaken, and nothing but time is lost.

::

    somebody's commit ──▶ store ◀── is there something due that nobody has? ── relay
                                                                  yes: ring ──▶ one of the others
    relay ◀── heard ── doorbell         wakes those who look here, then asks the store again:
          ── settle(left=False) ──▶     nothing is left to do: the message is done with
          ── settle(left=True)  ──▶     something is: the message goes on to another process
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class Doorbell(ABC):
    """A bell between processes. It serves one app, which opens and closes it."""

    is_listening: bool = False
    """Whether messages of others are heard now. While they are, stores are looked at more rarely."""

    heard: int = 0
    """How many messages were heard: read it before you look, and pass it to `settle`."""

    @abstractmethod
    async def open(self, wake: Callable[[], None]) -> None:
        """Begin to listen, and call `wake` when a message has come."""

    @abstractmethod
    async def close(self) -> None:
        """Stop. What was heard and not settled is left to others. Closing twice is fine."""

    @abstractmethod
    async def ring(self) -> None:
        """Tell one of the processes that listen. Any `OutlastError` means: perhaps nobody knows."""

    @abstractmethod
    async def settle(self, heard: int, *, left: bool) -> int:
        """The store was looked at after the first `heard` messages had come. If something is
        `left` that nobody has taken, they go on to others; else they are done with. Returns how
        many went on. What is never settled comes to somebody again. Never fails."""
