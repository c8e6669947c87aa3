"""Facts: bytes stored once by the hash of their content, of a tree of runs or on their own."""

from __future__ import annotations

import hashlib

import pytest
from msgspec import Raw

from outlast.errors import Conflict, InvalidCommit, NotFound
from outlast.model import Commit, Fact
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import begin, done, event, refused

DATA = bytes(range(256)) + b"\x00\xff" * 100


class Facts(StoreContract, needs=(Capability.FACTS,)):
    """Content-addressed values."""

    # -- on their own -------------------------------------------------------------------------

    @pytest.mark.proves("R-13", "R-14", "C-15", "I28")
    async def test_a_fact_is_found_by_its_hash(self, store: Store) -> None:
        """`save_fact` returns the SHA-256 of the bytes, `load_fact` the bytes."""
        hash = await store.save_fact(DATA)
        assert hash == hashlib.sha256(DATA).hexdigest()
        assert await store.load_fact(hash) == DATA
        assert await store.find_fact(hash) == Fact(hash, DATA)

    @pytest.mark.proves("R-14", "R-21", "C-06")
    async def test_a_fact_that_is_not_there(self, store: Store) -> None:
        """`find_fact` gives None, `load_fact` raises `NotFound` with the hash."""
        missing = Fact.of(b"missing").hash
        assert await store.find_fact(missing) is None
        with pytest.raises(NotFound) as caught:
            await store.load_fact(missing)
        assert (caught.value.kind, caught.value.id) == ("fact", missing)

    @pytest.mark.proves("R-13", "C-15")
    async def test_a_fact_saved_again_is_the_same_fact(self, store: Store) -> None:
        """Storing the same bytes twice changes nothing; one drop removes them."""
        first, second = await store.save_fact(DATA), await store.save_fact(DATA)
        assert first == second
        assert await store.drop_fact(first)
        assert await store.find_fact(first) is None

    @pytest.mark.proves("R-13", "C-07")
    async def test_dropping_a_fact_says_whether_it_was_there(self, store: Store) -> None:
        """True once, then False, and no other fact is touched."""
        kept, dropped = await store.save_fact(b"kept"), await store.save_fact(b"dropped")
        assert await store.drop_fact(dropped)
        assert not await store.drop_fact(dropped)
        assert await store.load_fact(kept) == b"kept"

    @pytest.mark.proves("R-13", "I28")
    async def test_a_fact_may_be_empty(self, store: Store) -> None:
        """No bytes have a hash too."""
        assert await store.load_fact(await store.save_fact(b"")) == b""

    @pytest.mark.proves("R-13", "K-15")
    async def test_a_fact_under_another_name_is_refused(self, store: Store) -> None:
        """A hash that is not that of the content would be a lie for ever."""
        lie = Fact(Fact.of(b"a").hash, b"b")
        with pytest.raises(InvalidCommit):
            await store.put_fact(lie)
        assert await store.find_fact(lie.hash) is None

    # -- of a tree ----------------------------------------------------------------------------

    @pytest.mark.proves("R-13", "R-20", "C-15", "I12")
    async def test_facts_of_a_commit_belong_to_the_tree(self, store: Store) -> None:
        """They are found with the root, and are not in the free namespace."""
        fact = Fact.of(DATA)
        await begin(store, "r")
        await done(store, Commit(run_id="r", facts=(fact,)))
        assert await store.load_fact(fact.hash, root="r") == DATA
        assert await store.find_fact(fact.hash) is None
        assert not await store.drop_fact(fact.hash)

    @pytest.mark.proves("C-15")
    async def test_a_tree_shares_its_facts(self, store: Store) -> None:
        """What a child stores is stored under the root, once, from whichever run of the tree."""
        fact = Fact.of(b"shared")
        await begin(store, "r")
        await begin(store, "r~child", parent="r")
        await done(store, Commit(run_id="r~child", facts=(fact,)))
        await done(store, Commit(run_id="r", facts=(fact, Fact.of(b"own"))))
        found = await store.find_fact(fact.hash, root="r")
        assert found == Fact(fact.hash, b"shared", "r")
        assert await store.find_fact(fact.hash, root="r~child") is None

    @pytest.mark.proves("C-15", "I27")
    async def test_trees_do_not_share_facts(self, store: Store) -> None:
        """The same bytes in another tree are that tree's own."""
        fact = Fact.of(b"same")
        for id in ("a", "b"):
            await begin(store, id)
        await done(store, Commit(run_id="a", facts=(fact,)))
        assert await store.find_fact(fact.hash, root="b") is None

    @needs(Capability.DELETE)
    @pytest.mark.proves("C-15", "I25")
    async def test_deleting_a_tree_leaves_the_facts_of_others(self, store: Store) -> None:
        """Facts go with their own root: not with another, not with a child."""
        fact = Fact.of(b"same")
        for id in ("a", "b", "b~child"):
            await begin(store, id, parent="b" if "~" in id else None)
            await done(store, Commit(run_id=id, facts=(fact,)))
        free = await store.save_fact(b"same")
        await store.delete("a")
        await store.delete("b~child")
        assert await store.find_fact(fact.hash, root="a") is None
        assert await store.load_fact(fact.hash, root="b") == b"same"
        assert await store.load_fact(free) == b"same"

    @pytest.mark.proves("I12")
    async def test_a_refused_commit_stores_no_facts(self, store: Store) -> None:
        """Facts share the fate of their commit."""
        fact = Fact.of(b"never")
        await begin(store, "r")
        await refused(store, Commit(run_id="r", expected=9, facts=(fact,)), Conflict)
        assert await store.find_fact(fact.hash, root="r") is None

    @pytest.mark.proves("R-20", "C-15", "R-16")
    async def test_a_history_is_read_without_its_large_values(self, store: Store) -> None:
        """Events carry hashes; the values behind them are loaded when they are wanted."""
        facts = [Fact.of(b"large %d" % n) for n in range(3)]
        await begin(store, "r")
        for fact in facts:
            recorded = event("r", data=Raw(b'{"fact":"%s"}' % fact.hash.encode()))
            await done(store, Commit(run_id="r", events=(recorded,), facts=(fact,)))
        history = await store.history("r")
        assert sum(len(one.data) for one in history) < 300
        wanted = bytes(history[1].data).split(b'"')[3].decode()
        assert await store.load_fact(wanted, root="r") == b"large 1"
