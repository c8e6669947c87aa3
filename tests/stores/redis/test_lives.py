"""The lives of runs, on Redis."""

from __future__ import annotations

import pytest

from outlast.testing import VirtualClock
from tests.campaigns.lives.deletions import ALL_STORIES
from tests.campaigns.lives.stories import Story, tell
from tests.stores.redis.servers import clustered, single

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
STORY = pytest.mark.parametrize("story", ALL_STORIES, ids=[story.__name__ for story in ALL_STORIES])


@pytest.mark.proves("I16", "I21", "I25")
@STORY
async def test_on_one_server(story: Story) -> None:
    """What becomes of children and messages when a life ends."""
    clock = VirtualClock()
    await tell(story, single(clock=clock), clock)


@pytest.mark.proves("I16", "I21", "I25")
@STORY
async def test_on_a_cluster(story: Story) -> None:
    """The same in partitions."""
    clock = VirtualClock()
    await tell(story, clustered(clock=clock), clock)
