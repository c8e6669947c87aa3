"""The conformance kit: certify a store against the contract of `outlast.ports.Store`.

Give a class a fixture `store`, and pytest runs everything that the port promises against it::

    import pytest
    from outlast.testkit.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        async def store(self, clock):
            async with MyStore(clock=clock) as store:
                yield store

The store has to be open and empty. It needs ``asyncio_mode = "auto"`` of pytest-asyncio, and
``pytest_plugins = ["outlast.testkit.conformance.plugin"]`` in the `conftest.py` on top.

Hooks, each with a default that fits a store that takes a clock and keeps nothing:

- ``async def advance(self, store, seconds)`` lets time pass: by default on the fixture `clock`.
  A store that judges by a server's clock moves its offset here.
- ``async def reopen(self, store)`` closes a durable store and opens another on the same data.
- ``thread_safe = True`` says that one store object may be shared by threads.

What the store does not declare in `capabilities` is not left out: its calls have to raise
`Unsupported`, and the tests that would use it are reported as skipped with the capability's name.

`StoreConformance` is all parts together; a part alone is a class as well, so that you can begin
with `Commits`, `Histories` and `Claims`. Each test says in its docstring which behaviour it shows
and with ``@pytest.mark.proves`` which contracts of `docs/reports/contracts.md` that is.
"""

# ruff: noqa: E402 — pytest has to know what to rewrite before it is imported

from __future__ import annotations

import pkgutil
from typing import cast

import pytest

# Asserts of the kit explain themselves like those of a test module.
pytest.register_assert_rewrite(
    *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
)

from outlast.testkit.conformance.activities import Activities
from outlast.testkit.conformance.bad_input import BadInput
from outlast.testkit.conformance.batches import AtomicBatches, Batches
from outlast.testkit.conformance.capabilities import Declarations
from outlast.testkit.conformance.children import Children
from outlast.testkit.conformance.claims import Claims
from outlast.testkit.conformance.commit import Commits
from outlast.testkit.conformance.concurrency import Concurrency
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.decisions import Decisions
from outlast.testkit.conformance.deletion import Deletion
from outlast.testkit.conformance.durability import Durable
from outlast.testkit.conformance.ending import Endings
from outlast.testkit.conformance.entries import Entries
from outlast.testkit.conformance.envelopes import Envelopes
from outlast.testkit.conformance.event_types import EventTypes
from outlast.testkit.conformance.facts import Facts
from outlast.testkit.conformance.families import Families
from outlast.testkit.conformance.fencing import Fencing
from outlast.testkit.conformance.fidelity import Fidelity
from outlast.testkit.conformance.find import Finding
from outlast.testkit.conformance.history import Histories
from outlast.testkit.conformance.idempotency import Keys
from outlast.testkit.conformance.ids import Ids
from outlast.testkit.conformance.inbox import Inboxes
from outlast.testkit.conformance.leases import Leases
from outlast.testkit.conformance.lifecycle import Lifecycle
from outlast.testkit.conformance.queries import Queries
from outlast.testkit.conformance.races import Races
from outlast.testkit.conformance.replacement import Replacement
from outlast.testkit.conformance.retention import Retention
from outlast.testkit.conformance.runnable import Runnable, WakeUps
from outlast.testkit.conformance.runs import Records
from outlast.testkit.conformance.sends import Sends
from outlast.testkit.conformance.snapshots import Snapshots
from outlast.testkit.conformance.task_results import TaskResults
from outlast.testkit.conformance.tasks import Tasks
from outlast.testkit.conformance.threads import Threads
from outlast.testkit.conformance.timers import Timers
from outlast.testkit.conformance.workers import Counts, Moves, Workers


class StoreConformance(
    Declarations,
    Lifecycle,
    Commits,
    Decisions,
    Batches,
    AtomicBatches,
    Histories,
    EventTypes,
    Records,
    Endings,
    Fidelity,
    Ids,
    BadInput,
    Envelopes,
    Claims,
    Leases,
    Fencing,
    Runnable,
    WakeUps,
    Inboxes,
    Sends,
    Tasks,
    TaskResults,
    Timers,
    Children,
    Finding,
    Queries,
    Counts,
    Workers,
    Entries,
    Activities,
    Snapshots,
    Facts,
    Keys,
    Deletion,
    Replacement,
    Families,
    Retention,
    Moves,
    Concurrency,
    Races,
    Threads,
    Durable,
):
    """Everything that the store port promises, from the core to what is optional."""


PARTS = cast("tuple[type[StoreContract], ...]", StoreConformance.__bases__)
"""All parts, in that order."""


__all__ = [
    "PARTS",
    "Activities",
    "AtomicBatches",
    "BadInput",
    "Batches",
    "Children",
    "Claims",
    "Commits",
    "Concurrency",
    "Counts",
    "Decisions",
    "Declarations",
    "Deletion",
    "Durable",
    "Endings",
    "Entries",
    "Envelopes",
    "EventTypes",
    "Facts",
    "Families",
    "Fencing",
    "Fidelity",
    "Finding",
    "Histories",
    "Ids",
    "Inboxes",
    "Keys",
    "Leases",
    "Lifecycle",
    "Moves",
    "Queries",
    "Races",
    "Records",
    "Replacement",
    "Retention",
    "Runnable",
    "Sends",
    "Snapshots",
    "StoreConformance",
    "StoreContract",
    "TaskResults",
    "Tasks",
    "Threads",
    "Timers",
    "WakeUps",
    "Workers",
]
