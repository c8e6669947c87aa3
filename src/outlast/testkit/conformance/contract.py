"""StoreContract: what every part of the kit stands on. A part is a class of tests of one behaviour.

A part, or a single test of it, says which capabilities it needs. If the store declares them, the
test runs. If not, the other half of the contract is checked in its place: that the calls raise
`Unsupported` and write nothing; then the test is reported as skipped, with the capability named.
So no test is left out unseen, and a store cannot pass by forgetting a method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import pytest

from outlast.ports import Capability, Store
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.undeclared import check_unsupported

F = TypeVar("F", bound=Callable[..., Any])
_NEEDS = "outlast_needs"


def needs(*capabilities: Capability) -> Callable[[F], F]:
    """Mark a test that uses these capabilities beside those of its class."""

    def mark(test: F) -> F:
        vars(test)[_NEEDS] = needs_of(test) | frozenset(capabilities)
        return test

    return mark


def needs_of(test: Callable[..., Any]) -> frozenset[Capability]:
    """The capabilities that a test uses."""
    found: frozenset[Capability] = getattr(test, _NEEDS, frozenset())
    return found


class StoreContract:
    """The base of all parts. Give it a fixture `store`; override the hooks if the defaults do not fit.

    ``class Timers(StoreContract, needs=(Capability.TIMERS,))`` declares what a part needs.
    """

    thread_safe: ClassVar[bool] = False
    """Whether one store object may be used from several threads, each with a loop of its own."""

    def __init_subclass__(cls, *, needs: tuple[Capability, ...] = (), **options: Any) -> None:
        super().__init_subclass__(**options)
        if needs:
            for name, test in vars(cls).items():
                if name.startswith("test_"):
                    vars(test)[_NEEDS] = needs_of(test) | frozenset(needs)

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The clock that the store is given, if it takes one. It stands still until moved."""
        return ManualClock()

    @pytest.fixture
    def store(self) -> Store:
        """The store under test: open, empty, and closed after the test."""
        raise NotImplementedError("give your class a fixture `store`")

    async def advance(self, store: Store, seconds: float) -> None:
        """Let time pass for the store. A store with a server's clock overrides this."""
        if not isinstance(store.clock, ManualClock):
            pytest.fail("give the store the fixture `clock`, or override `advance`")
        store.clock.advance(seconds)

    async def reopen(self, store: Store) -> Store:
        """Close `store` and open another on the same data, as a new process would.

        Called for durable stores only. The store that it returns is closed by the test.
        """
        raise NotImplementedError("a durable store has to show what survives: override `reopen`")

    @pytest.fixture(autouse=True)
    async def _declared(self, request: pytest.FixtureRequest, store: Store) -> None:
        missing = needs_of(request.function) - store.capabilities
        for capability in sorted(missing):
            await check_unsupported(store, capability)
        if missing:
            pytest.skip(f"not declared: {', '.join(sorted(missing))}; the calls raise Unsupported")
