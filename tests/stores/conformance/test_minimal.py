"""A store of a third party with nothing but the core, against the whole contract.

It is the store that docs/howto/write-your-own-store.md shows.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.model import Run, Status
from outlast.ports import Store
from outlast.ports.store_methods import StoreMethods
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance import StoreConformance
from outlast.testkit.conformance.scenario import event, events
from tests.stores.conformance.minimal_store import MinimalStore

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "write-your-own-store.md"


class TestMinimalStore(StoreConformance):
    """All parts of the kit: the core works, everything else is refused."""

    thread_safe = True

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """An empty store on a clock that stands still."""
        async with MinimalStore(clock=clock) as store:
            yield store


@pytest.fixture
def minimal() -> MinimalStore:
    """A store with the six methods and no capability."""
    return MinimalStore()


@pytest.mark.proves("S-18", "C-19", "D-05")
def test_the_core_is_six_methods() -> None:
    """A store has to implement the abstract methods of the port, and no more."""
    assert StoreMethods.__abstractmethods__ == {
        "commit",
        "find_one",
        "history",
        "claim_runs",
        "renew",
        "release",
    }
    assert MinimalStore.capabilities == frozenset()


@pytest.mark.proves("R-15", "R-17", "R-05", "R-16")
async def test_a_minimal_store_can_append_and_stream(minimal: MinimalStore) -> None:
    """Event-sourced writing and recovery come with the core: no store can have one without the
    other, so there is nothing to ask."""
    own = vars(MinimalStore)
    assert not {"append", "stream", "append_events", "last_sequence"} & own.keys()
    assert await minimal.append("r", events("r", 3)) == 3
    assert await minimal.append("r", [event("r")], expected=3) == 4
    streamed = [one.sequence async for one in minimal.stream("r", page=2)]
    assert streamed == [1, 2, 3, 4]


@pytest.mark.proves("R-18", "R-02", "R-03", "C-19")
async def test_a_minimal_store_can_save_and_load(minimal: MinimalStore) -> None:
    """Whoever wants whole records and no events uses `save` and `get` on the same core."""
    assert not {"save", "get", "exists"} & vars(MinimalStore).keys()
    await minimal.save(Run(id="r", workflow="order"))
    saved = await minimal.save(Run(id="r", workflow="order", status=Status.HALTED))
    assert await minimal.get("r") == saved
    assert (saved.status, saved.revision, saved.sequence) == (Status.HALTED, 2, 0)


@pytest.mark.proves("S-18")
def test_the_page_shows_this_store() -> None:
    """The code on the how-to page is the code that is certified here."""
    source = Path(inspect.getfile(MinimalStore)).read_text("utf-8")
    assert f"```python\n{source}```" in PAGE.read_text("utf-8")
