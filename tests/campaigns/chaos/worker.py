"""The app that workers run: `outlast worker tests.campaigns.chaos.worker:app`, told by its environment where
its store is, which life it is, and where to write down what it does."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import outlast
from outlast.ports import Store
from outlast.testing.crash_sweep import residency_for
from outlast.testkit.checker import RecordingStore
from outlast.urls import resolve
from tests.campaigns.chaos.ledgers import OpLog, Pulse
from tests.campaigns.chaos.workflows import ALL_KINDS, LEASE, STEPS
from tests.campaigns.engine_kills.ledgers import Ledger, keep_effects


class Worker(outlast.App):
    """An app that keeps ledgers. It opens its store with it, although it was handed one. Each life has
    a residency of its own: what one has written a snapshot of another evicts."""

    def __init__(self, url: str, folder: Path, life: int) -> None:
        channel = os.environ.get("CHAOS_WAKEUP_CHANNEL")
        # One that is to be woken for by others' messages must not hear the database besides.
        store = resolve(url) if channel is None else deaf(url)
        self._recorded = RecordingStore(store, OpLog(folder / f"{life}.ops"), str(life))
        self._pulse = Pulse(folder / "stalls", life)
        super().__init__(
            self._recorded,
            workflows=[kind.workflow for kind in ALL_KINDS.values()],
            steps=STEPS,
            lease=LEASE,
            name=f"worker-{life}",
            wakeup_channel=channel,
            residency=residency_for(life),
        )

    async def open(self) -> None:
        await self._recorded.open()
        self._beating = asyncio.create_task(self._pulse.beat())
        await super().open()

    async def close(self) -> None:
        await super().close()
        self._beating.cancel()
        await self._recorded.close()


def deaf(url: str) -> Store:
    """A store on PostgreSQL that hears nothing of what others do."""
    from outlast.stores.postgres import PostgresStore

    return PostgresStore(url, notify=False)


def app() -> outlast.App:
    """The app of this process."""
    folder, life = Path(os.environ["CHAOS_FOLDER"]), int(os.environ["CHAOS_LIFE"])
    keep_effects(Ledger(folder / "effects", life, synced=False, now=time.monotonic_ns))
    return Worker(os.environ["CHAOS_URL"], folder, life)
