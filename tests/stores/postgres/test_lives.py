"""The lives of runs, on PostgreSQL."""

from __future__ import annotations

import pytest

from outlast.testing import VirtualClock
from tests.campaigns.lives.deletions import ALL_STORIES
from tests.campaigns.lives.stories import Story, tell
from tests.stores.postgres.places import FreshStore

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.mark.proves("I16", "I21", "I25")
@pytest.mark.parametrize("story", ALL_STORIES, ids=[story.__name__ for story in ALL_STORIES])
async def test_a_story(story: Story) -> None:
    """What becomes of children and messages when a life ends."""
    clock = VirtualClock()
    await tell(story, FreshStore(clock=clock), clock)
