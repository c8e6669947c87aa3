"""Tiny jobs: ours through the queue on Redis, next to Celery, Dramatiq and huey on the same server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

from bench._pg_rivals import Jobs
from bench._rival import environment
from bench._table import Line, made_ready
from outlast.model import Task
from outlast.stores.redis import RedisQueue

PEERS = {
    "celery": ["celery[redis]==5.7.0"],
    "dramatiq": ["dramatiq[redis]==2.2.1"],
    "huey": ["huey[redis]==3.5.4"],
}
SCRIPT = Path(__file__).with_name("_peer_jobs.py")
AT_ONCE = 32
TOGETHER = 100
AIM = 3.0


async def measure_jobs(url: str, rounds: int, count: int) -> list[Line]:
    """Jobs a second, added and done. Rounds alternate between all contestants."""
    pythons = {name: environment(name, wanted) for name, wanted in PEERS.items()}
    found: dict[str, list[Jobs]] = {}
    for _ in range(rounds):
        found.setdefault("outlast", []).append(await _ours(url, count))
        for number, (name, python) in enumerate(pythons.items()):
            place = urlsplit(url)._replace(path=f"/{number + 1}").geturl()
            told = await asyncio.to_thread(theirs, python, name, place, count)
            found.setdefault(name, []).append(told)
    ours = [count / one.work for one in found["outlast"]]
    lines = [
        Line(
            f"{count:,} jobs done, against {name}",
            "jobs/s",
            ours,
            [count / one.work for one in found[name]],
            "theirs",
            AIM,
        )
        for name in PEERS
    ]
    added = [count / one.enqueue for one in found["outlast"]]
    return lines + [
        Line(
            f"{count:,} jobs added, against {name}",
            "jobs/s",
            added,
            [count / one.enqueue for one in found[name]],
            "theirs",
        )
        for name in PEERS
    ]


async def _ours(url: str, count: int) -> Jobs:
    async with RedisQueue(url, prefix=f"bench:{uuid.uuid4().hex}") as queue:
        tasks = [Task(id=f"job-{number}", name="job") for number in range(count)]
        with made_ready():
            begun = time.perf_counter()
            for first in range(0, count, TOGETHER):
                await queue.enqueue("jobs", tasks[first : first + TOGETHER])
            added = time.perf_counter()
            await asyncio.gather(*(_work(queue) for _ in range(AT_ONCE)))
            return Jobs(added - begun, time.perf_counter() - added)


async def _work(queue: RedisQueue) -> None:
    """Take jobs, do them, and acknowledge each when it is done, until none is left."""
    owner = uuid.uuid4().hex
    while (delivery := await queue.take("jobs", owner=owner, visibility=60.0)) is not None:
        await queue.ack(delivery.claim)


def theirs(python: Path, name: str, url: str, count: int) -> Jobs:
    """A round of one of the others, see bench/_peer_jobs.py."""
    # -P: next to the script lies a file that is called redis.py.
    command = [str(python), "-P", str(SCRIPT), name, url, str(count)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=env, check=True, timeout=600)
    return Jobs(**json.loads(done.stdout.splitlines()[-1]))
