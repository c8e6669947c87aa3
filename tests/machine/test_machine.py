"""Stores against the memory store, in sequences of calls that Hypothesis invents."""

from __future__ import annotations

from outlast.stores.memory import MemoryStore
from outlast.testing.machine import store_machine

TestMemoryAgainstItself = store_machine(lambda clock: MemoryStore(clock=clock), max_examples=30)
