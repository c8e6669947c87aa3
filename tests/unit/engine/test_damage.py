"""A run whose record is damaged: it is left alone, it can be ended, and nobody else is held up."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import outlast
from outlast.errors import Undecodable


@outlast.workflow
async def waits() -> str:
    return await outlast.wait_for_signal("go", str)


@pytest.mark.proves("I17")
@pytest.mark.parametrize("act", ["cancel", "terminate", "delete"])
async def test_a_damaged_run_harms_nobody_and_can_be_ended(tmp_path: Path, act: str) -> None:
    """Claimer skips it; cancel, terminate and delete work on it."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with outlast.App(url, workflows=[waits]) as opened:
        for id in ("damaged", "sound"):
            await opened.start(waits(), id=id)
    with sqlite3.connect(tmp_path / "store.db") as file:
        file.execute(
            "UPDATE run_details SET attributes = x'ff' "
            "WHERE key = (SELECT key FROM runs WHERE id = 'damaged')"
        )
    file.close()
    async with outlast.App(url, workflows=[waits]) as opened:
        for id in ("damaged", "sound"):
            await opened.get(id).signal("go", "on")
        assert await opened.get("sound").result(timeout=30) == "on"
        with pytest.raises(Undecodable, match="damaged"):
            await opened.get("damaged").status()
        await getattr(opened.get("damaged"), act)(**({"force": True} if act == "delete" else {}))
        if act == "delete":
            assert await opened.store.find_one("damaged") is None
        else:
            history = await opened.get("damaged").history()
            assert history[-1].type == "workflow.cancelled"
