"""Capabilities: what a store declares works, and what it does not declare raises `Unsupported`."""

from __future__ import annotations

from contextlib import suppress

import pytest

from outlast.errors import OutlastError, Unsupported
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import begin
from outlast.testkit.conformance.undeclared import CALLS, RUN, check_unsupported


class Declarations(StoreContract):
    """`Store.capabilities` is the truth."""

    @pytest.mark.proves("D-05", "D-38", "C-19", "R-18")
    @pytest.mark.parametrize("capability", Capability)
    async def test_a_capability_is_there_or_is_refused(
        self, store: Store, capability: Capability
    ) -> None:
        """Declared, no call of it is unsupported; not declared, every call of it is, and writes
        nothing."""
        if capability not in store.capabilities:
            await check_unsupported(store, capability)
            return
        await begin(store, RUN)
        for call in CALLS[capability]:
            # The calls are examples: some find nothing. What matters is that they are known.
            with suppress(OutlastError):
                try:
                    await call(store)
                except Unsupported as error:
                    pytest.fail(f"{capability} is declared, but: {error}")

    @pytest.mark.proves("C-19")
    async def test_capabilities_are_declared_as_a_frozen_set(self, store: Store) -> None:
        """They are a fact of the store's class, known before it is opened."""
        assert isinstance(type(store).capabilities, frozenset)
        assert type(store).capabilities <= frozenset(Capability)
        assert store.capabilities == type(store).capabilities
