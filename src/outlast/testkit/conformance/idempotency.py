"""Idempotency keys: bound once, by the first caller, and remembered."""

from __future__ import annotations

import pytest

from outlast.errors import InvalidId, PayloadTooLarge, UsageError
from outlast.model import Commit, Creation, Run
from outlast.model.validation import MAX_PAYLOAD_BYTES
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import begin, done


class Keys(StoreContract, needs=(Capability.KEYS,)):
    """`remember`, `recall`, and what is built on them."""

    @pytest.mark.proves("M-44", "I11")
    async def test_the_first_to_bind_a_key_binds_it(self, store: Store) -> None:
        """None for the first; all others get the value that it is bound to."""
        assert await store.remember("scope", "key", "first") is None
        assert await store.remember("scope", "key", "second") == "first"
        assert await store.remember("scope", "key", "first") == "first"
        assert await store.recall("scope", "key") == "first"

    @pytest.mark.proves("M-44", "C-06")
    async def test_a_key_that_is_not_bound(self, store: Store) -> None:
        """None, and asking does not bind it."""
        assert await store.recall("scope", "key") is None
        assert await store.remember("scope", "key", "value") is None

    @pytest.mark.proves("M-44", "I27")
    async def test_keys_of_two_scopes_do_not_mix(self, store: Store) -> None:
        """A key is named by its scope and its text together, without ambiguity."""
        pairs = [("a", "b"), ("a:b", "c"), ("a", "b:c"), ("A", "b"), ("a", "B"), ("a b", "c")]
        for n, (scope, key) in enumerate(pairs):
            assert await store.remember(scope, key, str(n)) is None
        assert [await store.recall(scope, key) for scope, key in pairs] == list("012345")

    @pytest.mark.proves("M-44", "I28")
    async def test_a_value_may_be_empty_or_strange(self, store: Store) -> None:
        """Any text is a value, also the empty one, which is not the lack of one."""
        for key, value in [("empty", ""), ("strange", "a'b\"c\\ {}:~✓\n")]:
            assert await store.remember("scope", key, value) is None
            assert await store.recall("scope", key) == value
            assert await store.remember("scope", key, "other") == value

    @pytest.mark.proves("I28", "S14")
    async def test_what_cannot_be_kept_is_refused(self, store: Store) -> None:
        """Too large a value, text that is no text, a run id that none can have: nothing is bound."""
        with pytest.raises(PayloadTooLarge):
            await store.remember("scope", "key", "x" * (MAX_PAYLOAD_BYTES + 1))
        with pytest.raises(UsageError):
            await store.remember("scope", "key", "\ud800")
        with pytest.raises(InvalidId):
            await store.remember("scope", "key", "value", run_id="a:b")
        assert await store.recall("scope", "key") is None

    @pytest.mark.proves("M-44", "I11")
    async def test_a_start_is_bound_to_one_run(self, store: Store) -> None:
        """`bind_start` says whether it created the binding, and which run has it."""
        assert await store.bind_start("order-7", "run-1") == (True, "run-1")
        assert await store.bind_start("order-7", "run-2") == (False, "run-1")
        assert await store.bind_start("order-7", "run-1") == (False, "run-1")
        assert await store.bound_run("order-7") == "run-1"
        assert await store.bound_run("order-8") is None

    @pytest.mark.proves("M-44")
    async def test_an_activity_is_first_once(self, store: Store) -> None:
        """True for the first call with an id, False ever after; no mix with starts."""
        await store.bind_start("charge", "run-1")
        answers = [await store.first_activity("charge") for _ in range(3)]
        assert answers == [True, False, False]

    @needs(Capability.DELETE)
    @pytest.mark.proves("M-44", "I25", "C-07")
    async def test_keys_of_a_run_go_with_it(self, store: Store) -> None:
        """A key that belongs to a run can be bound again once the run is deleted; others stay."""
        await begin(store, "r")
        await store.remember("scope", "own", "1", run_id="r")
        await store.remember("scope", "free", "1")
        await store.remember("scope", "other", "1", run_id="rr")
        await store.delete("r")
        assert await store.recall("scope", "own") is None
        assert await store.recall("scope", "free") == "1"
        assert await store.recall("scope", "other") == "1"
        assert await store.remember("scope", "own", "2") is None

    @needs(Capability.DELETE)
    @pytest.mark.proves("I25", "I11")
    async def test_keys_of_a_run_go_with_its_life(self, store: Store) -> None:
        """A run that is replaced begins without the keys of its old life."""
        await begin(store, "r")
        await store.first_activity("charge", run_id="r")
        await done(store, Commit(run_id="r", create=Run(id="r"), creation=Creation.REPLACE))
        assert await store.first_activity("charge", run_id="r")

    @pytest.mark.proves("K-15")
    @pytest.mark.parametrize("bad", ["", "a\x00b", "a\nb", "x" * 2000])
    async def test_bad_keys_are_refused(self, store: Store, bad: str) -> None:
        """Scope and key are names; what is refused is not bound."""
        with pytest.raises(InvalidId):
            await store.remember(bad, "key", "value")
        with pytest.raises(InvalidId):
            await store.remember("scope", bad, "value")
