"""Moves that others disturb: nothing that somebody was told is kept is lost, and nothing is doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlast
from outlast.errors import InvalidValue
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from tests.moving.family import furnish, look


@pytest.mark.proves("I3")
async def test_a_store_under_two_names_is_not_moved_onto_itself(tmp_path: Path) -> None:
    """Another spelling of the same file is found out before anything is sealed."""
    path = tmp_path / "shop.db"
    async with SqliteStore(path) as store:
        await furnish(store)
        before = await look(store)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.db").symlink_to(path)
    for other in (f"{tmp_path}/sub/../shop.db", f"{tmp_path}/link.db"):
        with pytest.raises(InvalidValue, match="same store"):
            await outlast.move(f"sqlite:///{path}", f"sqlite:///{other}")
    async with SqliteStore(path) as store:
        assert await look(store) == before


async def test_one_open_store_is_not_moved_onto_itself() -> None:
    """The same for stores that are given as they are."""
    async with MemoryStore() as store:
        await furnish(store)
        before = await look(store)
        with pytest.raises(InvalidValue, match="same store"):
            await outlast.move(store, store, address="there")
        assert await look(store) == before
