"""The server dies under load and comes back: what was acknowledged is there, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from outlast.errors import OutlastError, TryAgain
from outlast.model import Commit, Committed
from outlast.stores.redis import RedisStore
from outlast.testkit.conformance.scenario import begin, events
from tools.serving.redis import start_own

pytestmark = pytest.mark.server

CYCLES = 3
RUNS = [f"r{n}" for n in range(8)]


@pytest.mark.proves("I1", "I3", "I4", "C-01", "C-03")
async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    """`kill -9` with commits under way, several times; each open commit is then settled by its id.
    The long campaign is `./dev prove`."""
    url, process = start_own(tmp_path)
    port = urlsplit(url).port or 0
    made = dict.fromkeys(RUNS, 0)
    try:
        async with RedisStore(url) as store:
            for id in RUNS:
                await begin(store, id)
            for _ in range(CYCLES):
                enough = asyncio.Event()
                writers = [asyncio.create_task(write(store, id, made, enough)) for id in RUNS]
                await enough.wait()
                process._process.kill()
                process._process.wait()
                open_commits = await asyncio.gather(*writers)
                _, process = start_own(tmp_path, port)
                for commit in open_commits:
                    await settle(store, commit)
                    made[commit.run_id] += 1
                for id in RUNS:
                    sequences = [one.sequence for one in await store.history(id)]
                    assert sequences == list(range(1, made[id] + 1))
    finally:
        process.stop()


async def write(
    store: RedisStore, run_id: str, made: dict[str, int], enough: asyncio.Event
) -> Commit:
    """Append until the server is gone; the commit of which nobody knows."""
    while True:
        commit = Commit(run_id=run_id, events=events(run_id, 1))
        try:
            (outcome,) = await store.commit([commit])
        except OutlastError:
            return commit
        assert isinstance(outcome, Committed)
        made[run_id] += 1
        if min(made.values()) % 10 == 9:
            enough.set()


async def settle(store: RedisStore, commit: Commit) -> None:
    """Make it again, as it is, until it is known to be there."""
    for _ in range(100):
        try:
            (outcome,) = await store.commit([commit])
        except TryAgain:
            continue
        assert isinstance(outcome, Committed)
        return
    raise AssertionError("the server does not come back")
