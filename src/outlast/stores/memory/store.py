"""MemoryStore: the store port in plain dicts under one lock. Read its parts first: they are the
specification that the other stores are compared with, file by file."""

from __future__ import annotations

from outlast.ports.port import ALL_CAPABILITIES, Capability, Durability
from outlast.stores.memory.claims import MemoryClaims
from outlast.stores.memory.commit import MemoryCommit
from outlast.stores.memory.delete import MemoryDelete
from outlast.stores.memory.find import MemoryFind
from outlast.stores.memory.inbox import MemoryInbox
from outlast.stores.memory.queue import MemoryQueue
from outlast.stores.memory.run_details import MemoryRunDetails
from outlast.stores.memory.tasks import MemoryTasks
from outlast.stores.memory.transfer import MemoryTransfer
from outlast.stores.memory.workers import MemoryWorkers


class MemoryStore(
    MemoryCommit,
    MemoryFind,
    MemoryClaims,
    MemoryInbox,
    MemoryTasks,
    MemoryRunDetails,
    MemoryDelete,
    MemoryWorkers,
    MemoryTransfer,
):
    """Everything in this process, gone with it. Thread-safe."""

    capabilities = ALL_CAPABILITIES - {Capability.OWNER_GONE}
    durability = Durability.NOTHING

    async def open(self) -> None:
        self._closed = False

    async def close(self) -> None:
        self._closed = True

    def queue(self) -> MemoryQueue:
        return MemoryQueue(clock=self.clock, notifier=self.notifier, tables=self._tables)

    def sibling(self) -> MemoryStore:
        sibling = MemoryStore(clock=self.clock)
        sibling._tables, sibling.notifier = self._tables, self.notifier
        return sibling
