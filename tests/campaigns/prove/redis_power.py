"""Power loss under a Redis server: its filesystem is shut down, and what was not synced is gone.

The server's file lies on an ext4 of its own on a loop device. While eight writers append, the filesystem
is shut down without writing anything back, the server is killed, the filesystem mounted again, and the
server started on what is left. With `appendfsync always` all that was acknowledged must be there, in
order. `everysec` is the control: it must lose something, or the disk forgets too little.

    ./dev prove redis_power [--cuts 20] [--control-cuts 10] [--seed 1]

Needs root, and a kernel with loop devices; where it has none, it says so and ends with 2.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import random
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec

from outlast.errors import OutlastError
from outlast.model import Commit, Committed
from outlast.stores.redis import RedisStore
from outlast.testkit.conformance.scenario import begin, events
from tools.serving.redis import start_own

SHUTDOWN, NO_FLUSH = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
RUNS = [f"r{n}" for n in range(8)]
MEGABYTES = 128


def main(argv: list[str]) -> int:
    """Cut the power; 1 if something acknowledged was lost, or the control lost nothing."""
    parser = argparse.ArgumentParser(prog="./dev prove redis_power")
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--control-cuts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    if not can_mount():
        print("this needs root and loop devices, which are not to be had here: nothing was shown")
        return 2
    found = {}
    for fsync, cuts in (("always", options.cuts), ("everysec", options.control_cuts)):
        chance = random.Random(options.seed)
        results = [asyncio.run(_cut(fsync, chance)) for _ in range(cuts)]
        written, lost = sum(one for one, _ in results), sum(one for _, one in results)
        losing = sum(bool(one) for _, one in results)
        print(
            f"{fsync}: {cuts} power cuts, {written:,} commits acknowledged, {lost:,} of them lost "
            f"in {losing} cuts",
            flush=True,
        )
        found[fsync] = {"cuts": cuts, "acknowledged": written, "lost": lost, "losing": losing}
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode({"redis_power": found}))
    is_blunt = options.control_cuts and not found["everysec"]["lost"]
    return int(bool(found["always"]["lost"] or is_blunt))


def can_mount() -> bool:
    """Whether there is a disk that can be shut down."""
    if os.geteuid() != 0:
        return False
    try:
        with tempfile.TemporaryDirectory() as folder, Disk(Path(folder)):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


class Disk:
    """A filesystem in a file, whose power can be cut."""

    def __init__(self, folder: Path) -> None:
        self._image, self.place = folder / "disk.img", folder / "disk"

    def __enter__(self) -> Self:
        self.place.mkdir()
        with self._image.open("wb") as file:
            file.truncate(MEGABYTES * 2**20)
        _run("mkfs.ext4", "-q", str(self._image))
        self.mount()
        return self

    def __exit__(self, *_: object) -> None:
        _run("umount", str(self.place))

    def mount(self) -> None:
        """Mount it; what its journal has is done."""
        _run("mount", "-o", "loop", str(self._image), str(self.place))

    def cut(self) -> None:
        """From now on nothing is written to it."""
        place = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(place, SHUTDOWN, struct.pack("I", NO_FLUSH))
        finally:
            os.close(place)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


async def _cut(fsync: str, chance: random.Random) -> tuple[int, int]:
    """How many commits were acknowledged, and how many of them are gone."""
    with tempfile.TemporaryDirectory() as folder, Disk(Path(folder)) as disk:
        url, server = start_own(disk.place, 0, "--appendfsync", fsync)
        made = dict.fromkeys(RUNS, 0)
        target, enough = chance.randint(100, 800), asyncio.Event()
        async with RedisStore(url) as store:
            for id in RUNS:
                await begin(store, id)
            writers = [asyncio.create_task(_write(store, id, made, target, enough)) for id in RUNS]
            await enough.wait()
            disk.cut()
            told = dict(made)  # what is acknowledged later was told by a server without a disk
            server.kill()
            await asyncio.gather(*writers)
        _run("umount", str(disk.place))
        disk.mount()
        _, server = start_own(disk.place, urlsplit(url).port or 0, "--appendfsync", fsync)
        try:
            async with RedisStore(url) as store:
                left = {id: [one.sequence for one in await store.history(id)] for id in RUNS}
        finally:
            server.stop()
    for sequences in left.values():
        assert sequences == list(range(1, len(sequences) + 1)), "a history has a gap"
    return sum(told.values()), sum(max(told[id] - len(left[id]), 0) for id in RUNS)


async def _write(
    store: RedisStore, run_id: str, made: dict[str, int], target: int, enough: asyncio.Event
) -> None:
    """Append until the server is gone; tell when there is enough to lose."""
    while True:
        try:
            (outcome,) = await store.commit([Commit(run_id=run_id, events=events(run_id, 1))])
        except OutlastError:
            return
        assert isinstance(outcome, Committed)
        made[run_id] += 1
        if sum(made.values()) >= target:
            enough.set()
