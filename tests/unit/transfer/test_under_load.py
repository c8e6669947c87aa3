"""A short form of `./dev prove move`: workers, a client and movers that are killed, on real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.transfer.campaign import Campaign, travel
from tests.unit.transfer.places import clear, new_place


@pytest.mark.proves("I3", "I5", "I7", "I8", "I16")
@pytest.mark.server
async def test_moved_under_load_and_killed(tmp_path: Path) -> None:
    """SQLite to PostgreSQL to Redis and back, three kills a stage: every run ends where it should,
    every signal is heard once and in order, no result is recorded twice, no history has changed."""
    places = [new_place(kind, tmp_path) for kind in ("sqlite", "postgres", "redis", "sqlite")]
    places[-1] = places[0]
    campaign = Campaign(places, tmp_path / "ledger", seed=1, kills=3)
    try:
        await travel(campaign, runs=8)
    finally:
        for place in set(places):
            await clear(place)
    assert campaign.broken == []
    assert campaign.figures["stages"] == 3
    assert campaign.figures["told where"] > 0
