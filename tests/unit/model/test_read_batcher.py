"""Reads that are asked for together go as one, and nobody hears of another's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from outlast.errors import Undecodable
from outlast.ports.read_batcher import MOST, ReadBatcher


class Shelf:
    """Has every word in capitals, and says what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.trouble: Exception | None = None
        self.is_asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.words = ReadBatcher(self._read)

    async def _read(
        self, names: Sequence[str], timeout: float | None
    ) -> Mapping[str, str | Exception]:
        self.asked.append(list(names))
        self.is_asked.set()
        await self.go_on.wait()
        if self.trouble is not None:
            raise self.trouble
        return {name: Undecodable(name) if name == "damaged" else name.upper() for name in names}


async def test_those_of_one_turn_go_together() -> None:
    """Each gets its own, a name is asked for once, and what comes later is another read."""
    shelf = Shelf()
    found = await asyncio.gather(*(shelf.words.find(name, None) for name in ("a", "b", "a")))
    assert (found, shelf.asked) == (["A", "B", "A"], [["a", "b"]])
    assert await shelf.words.find("c", None) == "C"
    assert shelf.asked[1:] == [["c"]]


async def test_who_has_another_patience_goes_alone() -> None:
    """What ends the wait of one must not end that of another."""
    shelf = Shelf()
    await asyncio.gather(shelf.words.find("a", None), shelf.words.find("b", 1.0))
    assert shelf.asked == [["a"], ["b"]]


async def test_a_read_is_not_larger_than_it_may_be() -> None:
    """More names are more reads."""
    shelf = Shelf()
    names = [str(n) for n in range(2 * MOST + 1)]
    assert await asyncio.gather(*(shelf.words.find(name, None) for name in names)) == names
    assert [len(asked) for asked in shelf.asked] == [MOST, MOST, 1]


async def test_an_error_of_one_name_is_its_own() -> None:
    """A damaged record keeps nobody else from theirs; a lost connection concerns all."""
    shelf = Shelf()
    damaged, good = await asyncio.gather(
        shelf.words.find("damaged", None), shelf.words.find("a", None), return_exceptions=True
    )
    assert isinstance(damaged, Undecodable)
    assert good == "A"
    shelf.trouble = OSError("lost")
    found = await asyncio.gather(
        *(shelf.words.find(name, None) for name in "ab"), return_exceptions=True
    )
    assert found == [shelf.trouble] * 2


async def test_one_who_leaves_takes_nobody_along() -> None:
    """The first who asked is cancelled while all wait."""
    shelf = Shelf()
    shelf.go_on.clear()
    first, second = (asyncio.create_task(shelf.words.find(name, None)) for name in "ab")
    await shelf.is_asked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    shelf.go_on.set()
    assert await second == "B"
