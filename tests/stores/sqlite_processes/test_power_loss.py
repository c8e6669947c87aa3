"""Power cuts, a few of them. Every moment of many lives: `./dev prove power_loss`."""

from __future__ import annotations

import pytest

from tests.stores.sqlite_processes.lives import Cut, Life


@pytest.mark.proves("R-22", "K-08", "I1", "I3", "I4", "I12", "I13", "I16")
async def test_nothing_acknowledged_is_lost_with_the_power() -> None:
    """The power is cut at 300 moments in two lives, the second on what the first has left; each
    time the store opens, is sound, and has all that it had acknowledged."""
    first = Life(0, 1, "full", [], {})
    cuts = await lived_and_cut(first, 150)
    second = Life(1, 2, "full", cuts[-20].known, cuts[-20].image)
    cuts += await lived_and_cut(second, 150)
    assert [problem for cut in cuts for problem in (*cut.lost, *cut.damaged)] == []


async def test_the_disk_forgets_enough_to_tell() -> None:
    """Control: with `synchronous=NORMAL` some power cuts lose what was acknowledged, and none
    damages the file."""
    cuts = await lived_and_cut(Life(0, 1, "normal", [], {}), 60)
    assert any(cut.lost for cut in cuts)
    assert [cut.damaged for cut in cuts if cut.damaged] == []


async def lived_and_cut(life: Life, limit: int) -> list[Cut]:
    await life.live()
    return [cut async for cut in life.cuts(limit)]
