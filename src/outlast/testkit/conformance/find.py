"""Finding: runs by filters, newest first, page by page, without loss or repetition."""

from __future__ import annotations

import pytest

from outlast.errors import InvalidValue
from outlast.model import Change, Commit, Run, RunQuery, Status
from outlast.model.run import Attribute
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import begin, done, events, finish, gathered


class Finding(StoreContract, needs=(Capability.FIND,)):
    """`find`, `find_all` and `run_ids`."""

    async def _in_turn(self, store: Store, *run_ids: str, **record: object) -> None:
        """Create runs one after the other, so that the last one is the newest."""
        for run_id in run_ids:
            await self.advance(store, 1)
            await begin(store, run_id, **record)

    @pytest.mark.proves("D-10", "R-09", "M-08")
    async def test_an_empty_store_has_no_runs(self, store: Store) -> None:
        """Nothing to find is an empty page, not an error."""
        page = await store.find(RunQuery())
        assert (page.items, page.next) == ([], None)
        assert await store.run_ids() == []

    @pytest.mark.proves("C-08", "D-12", "R-09")
    async def test_runs_are_found_newest_first(self, store: Store) -> None:
        """The order is that of creation, backwards, whatever was changed since."""
        await self._in_turn(store, "b", "c", "a")
        await done(store, Commit(run_id="b", change=Change(error="touched")))
        assert await store.run_ids() == ["a", "c", "b"]

    @pytest.mark.proves("C-08", "I27")
    async def test_runs_of_one_moment_are_ordered_by_id(self, store: Store) -> None:
        """Ties are broken by the code points of the id, also backwards, in every database."""
        ids = ["a", "B", "b", "Z", "a-b", "a_b", "ab", "é", "e", "0", "10", "9", "😀", "z"]
        now = await store.now()
        commits = [Commit(run_id=id, create=Run(id=id, created_at=now)) for id in ids]
        await store.commit(commits)
        created = {id: (await store.get(id)).created_at for id in ids}
        expected = sorted(ids, key=lambda id: (created[id], id), reverse=True)
        assert await store.run_ids() == expected

    @pytest.mark.proves("D-10", "D-12")
    async def test_find_by_workflow(self, store: Store) -> None:
        """Only runs of that workflow, by its whole name."""
        await self._in_turn(store, "a", "b", workflow="order")
        await self._in_turn(store, "c", workflow="order-2")
        await self._in_turn(store, "d", workflow="Order")
        assert await store.run_ids(workflow="order") == ["b", "a"]
        assert await store.run_ids(workflow="ord") == []
        assert await store.run_ids(workflow="%") == []

    @pytest.mark.proves("M-08", "D-10", "D-39")
    async def test_find_by_status(self, store: Store) -> None:
        """One status, several, or, with none, all."""
        for status in Status:
            await self._in_turn(store, f"{status}-run", status=status)

        async def found(*status: Status) -> list[str]:
            page = await store.find(RunQuery(status=frozenset(status)))
            return [run.id for run in page.items]

        assert await found(Status.HALTED) == ["halted-run"]
        assert await found(Status.FAILED, Status.PENDING) == ["failed-run", "pending-run"]
        assert await found() == [f"{status}-run" for status in reversed(Status)]

    @pytest.mark.proves("M-08", "D-39", "I13")
    async def test_a_run_that_changes_its_status_is_found_by_the_new_one(
        self, store: Store
    ) -> None:
        """Every index follows the record: a run is never listed under a status it left."""
        await begin(store, "r", status=Status.PENDING)
        previous = Status.PENDING
        for status in (Status.RUNNING, Status.WAITING, Status.HALTED, Status.COMPLETED):
            await done(store, Commit(run_id="r", change=Change(status=status)))
            found = [run.id for run in (await store.find(_in(status))).items]
            left = [run.id for run in (await store.find(_in(previous))).items]
            assert (found, left) == (["r"], [])
            previous = status

    @pytest.mark.proves("D-10", "I13")
    async def test_a_run_that_changes_its_workflow_is_found_by_the_new_one(
        self, store: Store
    ) -> None:
        """The same for the name of the workflow."""
        await begin(store, "r", workflow="old")
        await done(store, Commit(run_id="r", change=Change(workflow="new")))
        assert await store.run_ids(workflow="new") == ["r"]
        assert await store.run_ids(workflow="old") == []

    @pytest.mark.proves("I21", "C-08")
    async def test_find_by_parent(self, store: Store) -> None:
        """The children of a run, not its grandchildren, not runs that look like it."""
        await self._in_turn(store, "p", "q")
        await self._in_turn(store, "p~1", "p~2", parent="p")
        await self._in_turn(store, "p~1~1", parent="p~1")
        await self._in_turn(store, "own", parent="p")
        page = await store.find(RunQuery(parent="p"))
        assert [run.id for run in page.items] == ["own", "p~2", "p~1"]

    @pytest.mark.proves("D-10", "I27")
    @pytest.mark.parametrize(
        ("asked", "found"),
        [
            pytest.param({"tenant": "acme"}, ["c", "b", "a"], id="text"),
            pytest.param({"n": 1}, ["a"], id="a number is not a bool"),
            pytest.param({"n": True}, ["b"], id="a bool is not a number"),
            pytest.param({"n": 1.0}, ["c"], id="a float is not an integer"),
            pytest.param({"n": "1"}, ["d"], id="text is not a number"),
            pytest.param({"tenant": "acme", "n": 1}, ["a"], id="both"),
            pytest.param({"nobody": "1"}, [], id="a name that no run has"),
            pytest.param({"tenant": "acme' OR '1'='1"}, [], id="an injection"),
            pytest.param({"n' OR 1=1 --": 1}, [], id="an injection in the name"),
            pytest.param({'a"b.c[0]$': "odd"}, ["d"], id="a name with special characters"),
        ],
    )
    async def test_find_by_attributes(
        self, store: Store, asked: dict[str, Attribute], found: list[str]
    ) -> None:
        """Attributes match by name, value and type, and are data, never code."""
        await self._in_turn(store, "a", attributes={"tenant": "acme", "n": 1})
        await self._in_turn(store, "b", attributes={"tenant": "acme", "n": True})
        await self._in_turn(store, "c", attributes={"tenant": "acme", "n": 1.0})
        await self._in_turn(
            store, "d", attributes={"tenant": "other", "n": "1", 'a"b.c[0]$': "odd"}
        )
        page = await store.find(RunQuery(attributes=asked))
        assert [run.id for run in page.items] == found

    @pytest.mark.proves("D-10")
    async def test_filters_combine(self, store: Store) -> None:
        """A run has to pass all filters."""
        await self._in_turn(store, "a", workflow="order", status=Status.HALTED)
        await self._in_turn(store, "b", workflow="order", status=Status.RUNNING)
        await self._in_turn(store, "c", workflow="other", status=Status.HALTED)
        query = RunQuery(workflow="order", status=frozenset({Status.HALTED}))
        assert [run.id for run in (await store.find(query)).items] == ["a"]

    @pytest.mark.proves("C-08", "D-10")
    async def test_filters_come_before_the_limit(self, store: Store) -> None:
        """A limit counts what matches, not what was looked at."""
        await self._in_turn(store, "old-1", "old-2", workflow="rare")
        await self._in_turn(store, *(f"new-{n}" for n in range(5)), workflow="common")
        page = await store.find(RunQuery(workflow="rare", limit=2))
        assert [run.id for run in page.items] == ["old-2", "old-1"]
        assert await store.run_ids(workflow="rare", limit=1) == ["old-2"]

    @pytest.mark.proves("D-10", "D-12", "C-08")
    async def test_without_a_limit_100_runs_are_found_and_1000_ids(self, store: Store) -> None:
        """The defaults that the seeds name: a page of 100 runs, and 1,000 ids."""
        ids = [f"r{n:04}" for n in range(1001)]
        for start in range(0, len(ids), 500):
            chunk = ids[start : start + 500]
            await store.commit([Commit(run_id=id, create=Run(id=id)) for id in chunk])
        page = await store.find(RunQuery())
        assert len(page.items) == 100
        assert page.next is not None
        assert len(await store.run_ids()) == 1000

    @pytest.mark.proves("C-08", "I13")
    @pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
    async def test_pages_show_every_run_once(self, store: Store, limit: int) -> None:
        """Following the cursor gives all runs in order; the last page has no cursor."""
        now = await store.now()
        # Three of them share a moment, so that a page may end inside a tie.
        for id in ("a", "b", "c"):
            await begin(store, id, created_at=now)
        await self._in_turn(store, "d", "e", "f")
        expected = await store.run_ids()
        pages, query = list[list[str]](), RunQuery(limit=limit)
        for _ in range(len(expected) + 1):
            page = await store.find(query)
            pages.append([run.id for run in page.items])
            if page.next is None:
                break
            query = RunQuery(limit=limit, after=page.next)
        assert [id for page_ids in pages for id in page_ids] == expected
        assert all(len(page_ids) == limit for page_ids in pages[:-1])
        assert pages[-1] != []

    @pytest.mark.proves("C-08")
    async def test_a_new_run_does_not_shift_the_pages(self, store: Store) -> None:
        """Runs that start between two pages neither repeat a run nor hide one."""
        await self._in_turn(store, "a", "b", "c", "d")
        first = await store.find(RunQuery(limit=2))
        await self._in_turn(store, "new")
        second = await store.find(RunQuery(limit=2, after=first.next))
        assert [run.id for run in second.items] == ["b", "a"]

    @needs(Capability.DELETE)
    @pytest.mark.proves("C-08")
    async def test_a_cursor_outlives_the_run_it_names(self, store: Store) -> None:
        """The run at the end of a page may be deleted; the next page goes on where it was."""
        await self._in_turn(store, "a", "b", "c", "d")
        first = await store.find(RunQuery(limit=2))
        await store.delete("c")
        second = await store.find(RunQuery(limit=2, after=first.next))
        assert [run.id for run in second.items] == ["b", "a"]

    @pytest.mark.proves("C-08", "D-10")
    async def test_a_cursor_keeps_to_the_filters(self, store: Store) -> None:
        """The pages of a filtered search show what matches and nothing else."""
        for n in range(6):
            await self._in_turn(store, f"r{n}", workflow="odd" if n % 2 else "even")
        first = await store.find(RunQuery(workflow="odd", limit=2))
        rest = await store.find(RunQuery(workflow="odd", limit=2, after=first.next))
        assert [run.id for run in first.items + rest.items] == ["r5", "r3", "r1"]

    @pytest.mark.proves("C-08")
    async def test_find_all_turns_the_pages(self, store: Store) -> None:
        """`find_all` yields what all pages show."""
        await self._in_turn(store, *"abcdefg")
        found = await gathered(store.find_all(RunQuery(limit=3)))
        assert [run.id for run in found] == list("gfedcba")

    @pytest.mark.proves("D-10", "I13")
    async def test_what_is_found_is_the_record(self, store: Store) -> None:
        """A run in a list is the same in every field as the run read alone."""
        await begin(store, "r", *events("r", 2), attributes={"n": 1}, error="x")
        await self.advance(store, 5)
        await finish(store, "r", Status.FAILED)
        assert (await store.find(RunQuery())).items == [await store.get("r")]

    @pytest.mark.proves("K-11", "M-02")
    async def test_what_is_found_is_a_private_copy(self, store: Store) -> None:
        """A caller cannot change the store through a page."""
        await begin(store, "r", attributes={"n": 1})
        page = await store.find(RunQuery())
        page.items[0].attributes["n"] = 2
        page.items.clear()
        assert [run.attributes for run in (await store.find(RunQuery())).items] == [{"n": 1}]

    @pytest.mark.proves("C-08", "K-15")
    @pytest.mark.parametrize(
        "query",
        [
            pytest.param(RunQuery(limit=0), id="limit 0"),
            pytest.param(RunQuery(limit=-1), id="negative limit"),
            pytest.param(RunQuery(limit=10_001), id="limit too high"),
            pytest.param(RunQuery(after=""), id="empty cursor"),
            pytest.param(RunQuery(after="not a cursor"), id="no cursor"),
            pytest.param(RunQuery(after="JzsgZHJvcCB0YWJsZSBydW5zOy0t"), id="injection"),
        ],
    )
    async def test_a_bad_query_is_an_error(self, store: Store, query: RunQuery) -> None:
        """A limit or cursor that cannot be honoured raises `InvalidValue`."""
        await begin(store, "r")
        with pytest.raises(InvalidValue):
            await store.find(query)
        assert await store.run_ids() == ["r"]


def _in(status: Status) -> RunQuery:
    return RunQuery(status=frozenset({status}))
