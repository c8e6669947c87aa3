"""The conformance kit: certify a store against the contract of `outlast.ports.Store`.

Give a class a fixture `store`, and pytest runs everything that the port promises against it::

    import pytest
    from outlast.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        async def store(self, clock):
            async with MyStore(clock=clock) as store:
                yield store

The store has to be open and empty. It needs ``asyncio_mode = "auto"`` of pytest-asyncio, and
``pytest_plugins = ["outlast.testing.conformance.plugin"]`` in the `conftest.py` on top.

Hooks, each with a default that fits a store that takes a clock and keeps nothing:

- ``async def advance(self, store, seconds)`` lets time pass: by default on the fixture `clock`.
  A store that judges by a server's clock moves its offset here.
- ``async def reopen(self, store)`` closes a durable store and opens another on the same data.
- ``thread_safe = True`` says that one store object may be shared by threads.

What the store does not declare in `capabilities` is not left out: its calls have to raise
`Unsupported`, and the tests that would use it are reported as skipped with the capability's name.

`StoreConformance` is all parts together; a part alone is a class as well, so that you can begin
with `Commits`, `Histories` and `Claims`. Each test says in its docstring which behaviour it shows
and with ``@pytest.mark.proves`` which contracts of `docs/reference/seeds.md` that is.
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

from outlast.testing.conformance.activities import Activities
from outlast.testing.conformance.bad_input import BadInput
from outlast.testing.conformance.batches import AtomicBatches, Batches
from outlast.testing.conformance.capabilities import Declarations
from outlast.testing.conformance.children import Children
from outlast.testing.conformance.claims import Claims
from outlast.testing.conformance.commit import Commits
from outlast.testing.conformance.company import Counts, Moves, Workers
from outlast.testing.conformance.concurrency import Concurrency
from outlast.testing.conformance.contract import StoreContract
from outlast.testing.conformance.decisions import Decisions
from outlast.testing.conformance.deletion import Deletion
from outlast.testing.conformance.durability import Durable
from outlast.testing.conformance.ending import Endings
from outlast.testing.conformance.entries import Entries
from outlast.testing.conformance.envelopes import Envelopes
from outlast.testing.conformance.event_types import EventTypes
from outlast.testing.conformance.facts import Facts
from outlast.testing.conformance.families import Families
from outlast.testing.conformance.fencing import Fencing
from outlast.testing.conformance.fidelity import Fidelity
from outlast.testing.conformance.find import Finding
from outlast.testing.conformance.history import Histories
from outlast.testing.conformance.idempotency import Keys
from outlast.testing.conformance.ids import Ids
from outlast.testing.conformance.inbox import Inboxes
from outlast.testing.conformance.leases import Leases
from outlast.testing.conformance.lifecycle import Lifecycle
from outlast.testing.conformance.questions import Questions
from outlast.testing.conformance.races import Races
from outlast.testing.conformance.replacement import Replacement
from outlast.testing.conformance.retention import Retention
from outlast.testing.conformance.runnable import Runnable, WakeUps
from outlast.testing.conformance.runs import Records
from outlast.testing.conformance.sends import Sends
from outlast.testing.conformance.snapshots import Snapshots
from outlast.testing.conformance.task_results import TaskResults
from outlast.testing.conformance.tasks import Tasks
from outlast.testing.conformance.threads import Threads
from outlast.testing.conformance.timers import Timers


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
    Questions,
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
    "Questions",
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
