"""The lives of runs, on memory and on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing import VirtualClock
from tests.campaigns.lives.deletions import ALL_STORIES
from tests.campaigns.lives.stories import Story, tell

STORY = pytest.mark.parametrize("story", ALL_STORIES, ids=[story.__name__ for story in ALL_STORIES])


@pytest.mark.proves("I16", "I21", "I25")
@STORY
async def test_on_memory(story: Story) -> None:
    """What becomes of children and messages when a life ends."""
    clock = VirtualClock()
    await tell(story, MemoryStore(clock=clock), clock)


@pytest.mark.proves("I16", "I21", "I25")
@STORY
async def test_on_sqlite(story: Story, tmp_path: Path) -> None:
    """The same in a file."""
    clock = VirtualClock()
    await tell(story, SqliteStore(tmp_path / "runs.db", clock=clock), clock)
