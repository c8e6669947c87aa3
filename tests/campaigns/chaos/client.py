"""The client's process: begins runs of every kind, so many under way at a time, until it is told that
it is enough, and then hears how all of them end.

It is told by lines: `begin KIND` one run of that kind at once, `enough`. It tells how many runs have
been begun and ended each time that changes, and `over` at the end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import traceback
from pathlib import Path

import outlast
from tests.campaigns.chaos.workflows import ALL_KINDS, CHAOS_KINDS, TALKS
from tests.campaigns.engine_kills.accompanying import Companion
from tests.campaigns.engine_kills.ledgers import Ledger
from tests.campaigns.engine_kills.workflows import id_of

UNDER_WAY = 100


class Client:
    """What has been begun, and what is under way."""

    def __init__(self, companion: Companion) -> None:
        self._companion = companion
        self._mine: set[asyncio.Task[None]] = set()
        self._begun = 0
        self._enough = False
        self._change = asyncio.Event()

    async def live(self) -> None:
        """Until enough was begun and all has ended."""
        listening = asyncio.create_task(self._listen())
        while self._mine or not self._enough:
            while len(self._mine) < UNDER_WAY and not self._enough:
                self._begin(id_of(self._begun, CHAOS_KINDS))
            print(self._begun, self._begun - len(self._mine), flush=True)
            self._change.clear()
            await self._change.wait()
        listening.cancel()

    def _begin(self, run_id: str) -> None:
        self._begun += 1
        task = asyncio.create_task(self._companion.accompany(run_id))
        self._mine.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._mine.discard(task)
        self._change.set()
        if (error := task.exception()) is not None:
            traceback.print_exception(error)
            os._exit(2)

    async def _listen(self) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := (await reader.readline()).decode().split():
            if line[0] == "begin":
                self._begin(f"{line[1]}-{self._begun}")
            else:
                self._enough = True
            self._change.set()
        os._exit(1)  # whoever started us is gone


async def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    folder = Path(os.environ["CHAOS_FOLDER"])
    ledger = Ledger(folder / "told", 0, synced=False, now=time.monotonic_ns)
    channel = os.environ.get("CHAOS_WAKEUP_CHANNEL")
    async with outlast.App(os.environ["CHAOS_URL"], name="client", wakeup_channel=channel) as app:
        await Client(Companion(app, ledger, kinds=ALL_KINDS, talks=TALKS, here=False)).live()
    print("over", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
