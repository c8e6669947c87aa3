"""Ids: what may be one means the same everywhere and collides with nothing; the rest is refused."""

from __future__ import annotations

import pytest

from outlast.errors import InvalidId
from outlast.model import Commit, Run, RunQuery
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import begin, event, events, unchanged

GOOD = {
    "one character": "a",
    "digits": "0",
    "spaces": " a  b ",
    "path": "../etc/passwd",
    "quotes": 'it\'s "quoted"',
    "statement": "'; DROP TABLE runs; --",
    "wildcards": "%_*?[a]",
    "backslash": "a\\b\\",
    "percent encoding": "a%2Fb%00",
    "html": "<b onclick=x>&amp;</b>",
    "not ascii": "заказ-№7",
    "emoji": "👩‍👩‍👧 order",
    "right to left": "שלום\u202eabc",
    "as long as allowed": "x" * 255,
    "as many bytes as allowed": "é" * 127 + "x",
    "a word of ours": "None",
}
BAD = {
    "empty": "",
    "colon": "a:b",
    "brace": "a{b",
    "closing brace": "}a",
    "newline": "a\nb",
    "NUL": "a\x00b",
    "escape": "a\x1b[31mb",
    "delete": "a\x7fb",
    "C1 control": "a\x85b",
    "lone surrogate": "a\ud800",
    "too long": "x" * 1025,
    "too many bytes": "é" * 513,
    "ends with a separator": "a~",
    "starts with a separator": "~a",
    "only a separator": "~",
}
LOOK_ALIKE = [
    ("a", "A"),
    ("a", "a "),
    ("a", " a"),
    ("é", "e\u0301"),
    ("K", "\u212a"),
    ("ss", "ß"),
    ("1", "01"),
    ("a", "aa"),
    ("a-1", "a_1"),
    ("null", "NULL"),
]


class Ids(StoreContract):
    """Run ids, as every method takes them."""

    @pytest.mark.proves("I27", "R-06")
    @pytest.mark.parametrize("run_id", GOOD.values(), ids=GOOD)
    async def test_an_id_is_any_text_that_looks_the_same_everywhere(
        self, store: Store, run_id: str
    ) -> None:
        """An unusual id names its run and no other: created, appended to, read, claimed."""
        await begin(store, run_id, *events(run_id, 1))
        assert await store.append(run_id, [event(run_id)]) == 2
        record = await store.get(run_id)
        assert (record.id, record.sequence) == (run_id, 2)
        assert [one.run_id for one in await store.history(run_id)] == [run_id, run_id]
        (claimed,) = await store.claim_runs("w", 30, run_ids=[run_id])
        assert claimed.run.id == run_id
        if Capability.FIND in store.capabilities:
            assert [run.id for run in (await store.find(RunQuery())).items] == [run_id]

    @pytest.mark.proves("I27", "K-15")
    @pytest.mark.parametrize("run_id", BAD.values(), ids=BAD)
    async def test_what_is_no_id_is_refused_everywhere(self, store: Store, run_id: str) -> None:
        """A text that no store may hold is an error for reading and writing alike."""
        await begin(store, "r")
        async with unchanged(store, "r"):
            with pytest.raises(InvalidId):
                await store.commit([Commit(run_id=run_id, create=Run(id=run_id))])
            with pytest.raises(InvalidId):
                await store.append(run_id, [event(run_id)])
            with pytest.raises(InvalidId):
                await store.find_one(run_id)
            with pytest.raises(InvalidId):
                await store.history(run_id)
            with pytest.raises(InvalidId):
                await store.save(Run(id=run_id))

    @pytest.mark.proves("I27")
    @pytest.mark.parametrize(("one", "other"), LOOK_ALIKE)
    async def test_ids_that_look_alike_are_two(self, store: Store, one: str, other: str) -> None:
        """Nothing is folded, trimmed or normalised: two texts are two runs."""
        await begin(store, one, *events(one, 1))
        assert not await store.exists(other)
        await begin(store, other, *events(other, 2))
        assert [await store.last_sequence(id) for id in (one, other)] == [1, 2]

    @pytest.mark.proves("I27", "I21")
    async def test_only_a_child_has_a_separator_in_its_id(self, store: Store) -> None:
        """Nobody creates a run inside another's tree unless it is its child."""
        for run in (
            Run(id="a~1"),
            Run(id="a~1", parent="b"),
            Run(id="a~1", parent="a~"),
            Run(id="ab~1", parent="a"),
        ):
            with pytest.raises(InvalidId):
                await store.commit([Commit(run_id=run.id, create=run)])
            assert not await store.exists(run.id)
        await begin(store, "a~1", parent="a")
        await begin(store, "a~1~x", parent="a~1")
        assert await store.exists("a~1~x")

    @pytest.mark.proves("I27")
    async def test_the_id_of_a_child_may_be_longer(self, store: Store) -> None:
        """A root id has up to 255 bytes, the path below it makes up to 1,024."""
        root = "x" * 255
        deep = root + "~" + "y" * (1024 - 256)
        await begin(store, root)
        await begin(store, deep, *events(deep, 1), parent=root)
        assert await store.last_sequence(deep) == 1
        with pytest.raises(InvalidId):
            await begin(store, "x" * 256)
        with pytest.raises(InvalidId):
            await begin(store, deep + "y", parent=root)

    @pytest.mark.proves("I27", "I28")
    async def test_names_inside_a_run_may_be_almost_anything(self, store: Store) -> None:
        """Event ids, step names and owners hold what run ids may not."""
        name = "step:{1}~a/'b' ✓"
        await begin(store, "r", event("r", id=name, step_name=name, metadata={name: name}))
        (found,) = await store.history("r")
        assert (found.id, found.step_name, found.metadata) == (name, name, {name: name})
        (claimed,) = await store.claim_runs(name, 30, run_ids=["r"])
        assert claimed.run.owner == name
