"""The model machine: any store against the memory store, call by call.

::

    TestMyStore = store_machine(lambda clock: MyStore(clock=clock), max_examples=150)

Hypothesis invents sequences of calls (commits of every shape under right, stale and missing
tokens, claims, time, sends, tasks, timers, deletion, searches, the same commit again …) and makes
each of them on both stores. Answers and everything the stores then hold must be the same; a
sequence that tells them apart is shrunk to a short one and printed as code.
"""

from __future__ import annotations

import unittest
from typing import Any

from hypothesis import HealthCheck, seed, settings

from outlast.stores.memory import MemoryStore
from outlast.testkit.stateful.rules import Rules
from outlast.testkit.stateful.world import MakeStore

__all__ = ["MakeStore", "Rules", "store_machine"]

# Sequences are long by design, and a busy machine is not a bug.
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def store_machine(
    make_store: MakeStore,
    *,
    max_examples: int = 100,
    steps: int = 30,
    seeded: int | None = None,
    **options: Any,
) -> type[unittest.TestCase]:
    """A test case that compares the stores of `make_store` with the memory store. The same number
    in `seeded` gives the same sequences; `options` are settings of Hypothesis."""
    makers = (lambda clock: MemoryStore(clock=clock), make_store)
    machine: type[Rules] = type("StoreMachine", (Rules,), {"makers": makers})
    if seeded is not None:
        seed(seeded)(machine)
    case: type[unittest.TestCase] = machine.TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=SLOW,
        **options,
    )
    return case
