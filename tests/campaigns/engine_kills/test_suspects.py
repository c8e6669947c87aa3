"""Steps that ran beside one that kills its process: they begin again within seconds, and end well."""

from __future__ import annotations

import asyncio
import os
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest

import outlast
from tests.stores.sqlite_processes.crew import Member

INNOCENT = 40
FUSE = 0.2
folder = Path()
born = 0.0


@outlast.step
async def innocent(number: int) -> int:
    with (folder / f"{os.getpid()}").open("a") as file:
        file.write(f"{time.monotonic() - born}\n")
    await asyncio.sleep(1.5)
    return number


@outlast.step
async def killer() -> None:
    await asyncio.sleep(FUSE)
    os._exit(9)


@outlast.workflow
async def good(number: int) -> int:
    return await innocent(number)


@outlast.workflow
async def bad() -> None:
    await killer()


def live(pipe: Pipe, path: str) -> list[str]:
    """One process that drives forty good runs and a bad one, for as long as it lives."""
    global folder
    folder = Path(path)

    async def work() -> list[str]:
        global born
        born = time.monotonic()
        url = f"sqlite:///{path}/store.db"
        async with outlast.App(url, workflows=[good, bad], lease=1) as app:
            ids = [f"good-{number}" for number in range(INNOCENT)]
            for number, id in enumerate(ids):
                await app.start(good(number), id=id)
                if number == INNOCENT // 2:
                    await app.start(bad(), id="bad")
            runs = [app.get(id) for id in (*ids, "bad")]
            await asyncio.gather(*(run.result() for run in runs), return_exceptions=True)
            return [str((await run.status()).status) for run in runs]

    return asyncio.run(work())


@pytest.mark.proves("I10", "I24")
def test_forty_innocents_begin_soon_and_end_well_beside_a_killer(tmp_path: Path) -> None:
    """The killer is found after a few deaths and fails; no other step fails, however often it died with it;
    and after each death all of them begin within seconds."""
    for life in range(1, 12):
        member = Member(live, (str(tmp_path),))
        try:
            statuses = member.pipe.recv()
        except EOFError:
            continue  # it was killed by its step
        finally:
            member.kill()
        assert statuses == [*["completed"] * INNOCENT, "failed"]
        assert life <= 9
        moments = [
            float(line)
            for file in tmp_path.iterdir()
            if file.name.isdigit()
            for line in file.read_text().splitlines()
        ]
        assert max(moments) < 20  # on a busy machine; one after the other took ten seconds each
        return
    pytest.fail("the killer is tried again and again")
