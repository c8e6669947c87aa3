"""The store and queue in memory: the specification in plain dicts. For tests; never a default."""

from outlast.stores.memory.queue import MemoryQueue
from outlast.stores.memory.store import MemoryStore

__all__ = ["MemoryQueue", "MemoryStore"]
