"""Large trees are deleted in portions: the server answers others in between, and no call sees a half."""

from __future__ import annotations

import asyncio
import signal as signal_numbers
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from outlast.errors import NotFound, RunsOpen
from outlast.model import Change, Commit, Creation, Run, RunQuery, Start, Status, Task
from outlast.model.queue_policy import QueuePolicy
from outlast.model.times import NOW
from outlast.ports import Store
from outlast.query import parse
from outlast.stores.memory import MemoryStore
from outlast.stores.redis import RedisStore, delete
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance import Counts, Deletion, Families, Moves, Replacement, Retention
from outlast.testkit.conformance.scenario import begin, done, events, finish, outcome_of, signal
from outlast.transfer import move_runs
from tests.stores.redis.portions import (
    FACT,
    delete_and_die,
    left_of,
    marks_of,
    plant,
    portions_of,
    remove,
)
from tests.stores.redis.servers import SINGLE, again, clustered, single, url_of

pytestmark = pytest.mark.server
ON = pytest.mark.parametrize("on", [single, clustered], ids=["single", "cluster"])
CHILDREN = 10


@pytest.fixture
def small() -> Iterator[None]:
    """Portions of three runs."""
    with portions_of(3, large=3):
        yield


class TestPortions(Counts, Deletion, Families, Moves, Replacement, Retention):
    """The promises about the end of runs, with every tree a large one that goes run by run."""

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """A store on the single server."""
        with portions_of(1, large=0):
            async with single(clock=clock) as store:
                yield store

    async def reopen(self, store: Store) -> Store:
        """Another store under the same prefix."""
        assert isinstance(store, RedisStore)
        await store.close()
        return again(store)


class TestPortionsOnACluster(TestPortions):
    """The same in partitions."""

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """A store on the cluster."""
        with portions_of(1, large=0):
            async with clustered(clock=clock) as store:
                yield store


def spied(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which scripts the store runs from now on, and with how many keys of runs."""
    server, ran = store._server, []
    request = server._request

    def noted(call: Any) -> Any:
        ran.append((call.script, sum(name.startswith("wf:") for name in call.names)))
        return request(call)

    monkeypatch.setattr(server, "_request", noted)
    return ran


@pytest.mark.proves("I25", "C-16")
@ON
async def test_no_script_removes_more_than_a_portion(
    on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 runs go in portions of 200, with all they own; a tree of a few goes in one script."""
    async with on() as store:
        await begin(store, "r")
        starts = tuple(Start(Run(id=f"r~{n}", parent="r"), events(f"r~{n}", 1)) for n in range(500))
        await done(store, Commit(run_id="r", starts=starts))
        ran = spied(store, monkeypatch)
        assert await store.delete("r")
        assert max(keys for _, keys in ran) <= 200 * 13
        assert {script for script, _ in ran} == {"delete", "delete_portion"}
        assert await left_of(store, "r") == set()
        assert await marks_of(store) == []
        await plant(store, "s", 5)
        ran.clear()
        assert await store.delete("s")
        assert {script for script, _ in ran} <= {"delete", "receive_entry"}


@pytest.mark.proves("I12", "I25")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("portions", [0, 1, 3])
@ON
async def test_a_tree_is_gone_at_once(on: Any, portions: int, clock: ManualClock) -> None:
    """The process that deletes it dies after some portions: no read shows any run of it, and no call
    acts on one."""
    async with on(clock=clock) as store, again(store) as other:
        ids = await plant(store, "r", CHILDREN)
        await delete_and_die(store, "r", portions=portions)
        for id in ("r", *ids, f"{ids[-1]}~x"):
            assert await other.find_one(id) is None
            assert await other.history(id) == []
            assert await other.inbox(id) == []
            assert await other.timers(id) == []
        assert await other.histories(ids) == {id: [] for id in ids}
        assert (await other.find(RunQuery())).items == []
        assert await other.recall("start", f"key of {ids[-1]}") is None
        assert len(await marks_of(other)) == 1  # reads leave the rest to others
        last = ids[-1]
        if portions == 0:
            assert await other.claim_task(last, "task", "w") is None
        elif portions == 1:
            assert isinstance((await other.send([signal(last)]))[0], NotFound)
        else:
            commit = Commit(run_id=last, events=events(last, 1))
            assert isinstance(await outcome_of(other, commit), NotFound)
        assert await other.claim_runs("w", 30, limit=100) == []
        assert await other.counts() == {}
        assert await left_of(other, "r") == set()


@pytest.mark.proves("I11", "I25")
@pytest.mark.usefixtures("small")
@ON
async def test_ids_of_a_tree_that_is_being_deleted_begin_fresh(on: Any, clock: ManualClock) -> None:
    """The root and its children begin again meanwhile: nothing of the old ones is left, and nothing
    of the new ones goes with them."""
    async with on(clock=clock) as store:
        ids = await plant(store, "r", CHILDREN)
        await delete_and_die(store, "r", portions=1)
        await begin(store, "r")
        await done(store, Commit(run_id="r", starts=(Start(Run(id=ids[-1], parent="r")),)))
        await delete.finish_all(await store._session.server(), timeout=None)
        assert [run.id for run in (await store.find(RunQuery())).items] == [ids[-1], "r"]
        assert await store.history(ids[-1]) == []
        assert await store.inbox(ids[-1]) == []
        clock.advance(61)
        await store.claim_runs(
            "w", 30, run_ids=["another"]
        )  # carries over what concerns other partitions
        assert await store.remember("start", f"key of {ids[-1]}", "mine", run_id="r") is None


@pytest.mark.proves("I25")
@pytest.mark.usefixtures("small")
@ON
async def test_many_delete_one_tree_at_once(on: Any, clock: ManualClock) -> None:
    """One of them has deleted it; another run that begins under the id meanwhile stays whole."""
    async with on(clock=clock) as store, again(store) as other:
        await plant(store, "r", CHILDREN)
        uid = (await store.get("r")).uid
        gone = await asyncio.gather(*(one.delete("r", uid=uid) for one in (store, other) * 3))
        assert gone.count(True) == 1
        assert await left_of(store, "r") == set()
        ids = await plant(store, "r", CHILDREN)
        await delete_and_die(store, "r")

        async def again_with_a_child(one: RedisStore) -> None:
            child = Start(Run(id=ids[0], parent="r"), events(ids[0], 1))
            await one.commit([Commit(run_id="r", create=Run(id="r"), starts=(child,))])

        await asyncio.gather(
            again_with_a_child(store), again_with_a_child(other), other.delete("r", uid=uid)
        )
        assert [run.id for run in (await store.find(RunQuery())).items] == [ids[0], "r"]
        assert len(await store.history(ids[0])) == 1


@pytest.mark.proves("I25", "I23")
@pytest.mark.usefixtures("small")
@ON
async def test_a_worker_finishes_what_a_dead_process_left(on: Any, clock: ManualClock) -> None:
    """When it looks for work after a while; `reconcile` does, too, and finds nothing to mend."""
    async with on(clock=clock) as store:
        await plant(store, "r", CHILDREN)
        await store.claim_runs("w", 30, run_ids=["another"])
        await delete_and_die(store, "r", portions=1)
        await store.claim_runs("w", 30, run_ids=["another"])
        assert len(await marks_of(store)) == 1
        clock.advance(61)
        await store.claim_runs("w", 30, run_ids=["another"])
        assert await marks_of(store) == []
        assert await left_of(store, "r") == set()
        await plant(store, "s", CHILDREN)
        await delete_and_die(store, "s", portions=2)
        assert await store.reconcile() == 0
        assert await left_of(store, "s") == set()


@pytest.mark.proves("I25", "I12")
async def test_a_process_is_killed_between_two_portions(clock: ManualClock) -> None:
    """With SIGKILL: the next process sees none of the tree, and removes the rest."""
    async with single(clock=clock) as store:
        await begin(store, "r")
        starts = tuple(Start(Run(id=f"r~{n}", parent="r"), events(f"r~{n}", 1)) for n in range(500))
        await done(store, Commit(run_id="r", starts=starts))
        url, prefix = url_of(SINGLE), str(store.describe()["prefix"])
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, url, prefix)
        assert await process.wait() == -signal_numbers.SIGKILL
        assert len([name for name in await left_of(store, "r") if name.endswith(":state")]) > 200
        assert (await store.find(RunQuery())).items == []
        assert await store.find_one("r~499") is None
        await begin(store, "r")
        await begin(store, "r~499", parent="r")
        assert await marks_of(store) == []
        assert {run.id for run in (await store.find(RunQuery())).items} == {"r", "r~499"}
        assert {name.split(":")[1] for name in await left_of(store, "r")} == {"r", "r~499"}


DIES = """
import asyncio, os, signal, sys
from outlast.stores.redis import RedisStore
from outlast.stores.redis.session import Server

call = Server.call

async def dies(server, one, **options):
    answer = await call(server, one, **options)
    if one.script == "delete_portion":
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

async def main():
    async with RedisStore(sys.argv[1], prefix=sys.argv[2]) as store:
        Server.call = dies
        await store.delete("r")

asyncio.run(main())
"""


@pytest.mark.proves("I26")
@pytest.mark.usefixtures("small")
@ON
async def test_a_large_tree_expires_when_all_of_it_has_ended(on: Any, clock: ManualClock) -> None:
    """As long as one descendant is open it stays, and `only_ended` names that one."""
    async with on(clock=clock) as store:
        ids = await plant(store, "r", CHILDREN)
        grandchildren = [f"{id}~x" for id in ids if id[-1] in "02468"]
        for id in (*ids[:-1], *grandchildren, "r"):
            await finish(store, id)
        clock.advance(100)
        assert await store.expire(await store.now()) == []
        with pytest.raises(RunsOpen) as refused:
            await store.delete("r", only_ended=True)
        assert list(refused.value.open) == [ids[-1]]
        assert len((await store.find(RunQuery(limit=100))).items) == 1 + len(ids) + len(
            grandchildren
        )
        await finish(store, ids[-1])
        clock.advance(100)
        assert await store.expire(await store.now()) == ["r"]
        assert await left_of(store, "r") == set()
        assert await marks_of(store) == []


@pytest.mark.proves("I25", "I26")
@pytest.mark.usefixtures("small")
async def test_a_run_that_begins_while_its_tree_is_checked_is_seen(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether all have ended is read in portions: a descendant that comes after the read counts."""
    ids = await plant(store, "r", CHILDREN)
    for id in (*ids, *(f"{id}~x" for id in ids if id[-1] in "02468"), "r"):
        await finish(store, id)
    check, late = delete.open_below, f"{ids[0]}~late"

    async def beaten(*args: Any, **options: Any) -> list[str]:
        found = await check(*args, **options)
        if await store.find_one(late) is None:
            await begin(store, late, parent=ids[0])
        return found

    monkeypatch.setattr(delete, "open_below", beaten)
    with pytest.raises(RunsOpen):
        await store.delete("r", only_ended=True)
    assert await store.exists(late)
    await finish(store, late)
    assert await store.delete("r", only_ended=True)
    assert await left_of(store, "r") == set()


@pytest.mark.proves("I21", "I25")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("first", ["read", "end", "begin"])
@ON
async def test_a_life_that_replaces_a_large_tree_leaves_what_is_open(
    on: Any, first: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descendants that have ended go, also if the process dies right after the commit; those that are
    open go on, may end after it, and keep the facts of the tree."""
    async with on(clock=clock) as store:
        ids = await plant(store, "r", CHILDREN)
        for id in ids[:-2]:
            await finish(store, id)

        async def dies(*args: object, **options: object) -> None:
            pass

        with monkeypatch.context() as patch:
            patch.setattr("outlast.stores.redis.commit.finish_or_leave", dies)
            new = Run(id="r", uid="another")
            await done(store, Commit(run_id="r", create=new, creation=Creation.REPLACE))
        assert len(await marks_of(store)) == 1
        await remove(store, "r", 1)
        again, open = ids[-3], ids[-2]
        if first == "read":
            assert await store.find_one(again) is None
        elif first == "end":
            await finish(store, open)  # it has not ended when the tree was replaced
        else:
            await done(store, Commit(run_id="r", starts=(Start(Run(id=again, parent="r")),)))
            assert (await store.get(again)).status is Status.PENDING
        assert await marks_of(store) == []
        grandchildren = {f"{id}~x" for id in ids if id[-1] in "02468"}
        left = {run.id for run in (await store.find(RunQuery(limit=100))).items}
        assert left - {again} == {"r", *ids[-2:], *grandchildren}
        assert (again in left) == (first == "begin")
        assert (await store.get(open)).status.terminal == (first == "end")
        assert await store.find_fact(FACT.hash, root="r") is not None
        assert (await store.get("r")).uid == "another"


@pytest.mark.proves("I25")
@pytest.mark.usefixtures("small")
@ON
async def test_a_tree_that_is_being_deleted_is_not_moved(on: Any, clock: ManualClock) -> None:
    """A move finds nothing of it, and takes other runs."""
    async with on(clock=clock) as store, MemoryStore(clock=clock) as target:
        await plant(store, "r", CHILDREN)
        await begin(store, "another", runnable_at=NOW)
        await delete_and_die(store, "r", portions=1)
        moved = await move_runs(store, target, parse(""), address="elsewhere")
        assert moved.refused == {}
        found = [run.id for run in (await target.find(RunQuery(limit=100))).items]
        assert found == ["another"]


@pytest.mark.proves("I5", "I17")
@pytest.mark.usefixtures("small")
@ON
async def test_an_owner_of_a_deleted_run_is_refused(on: Any, clock: ManualClock) -> None:
    """Its lease is not extended, and its commit is refused, before its run has been removed."""
    async with on(clock=clock) as store:
        ids = await plant(store, "r", CHILDREN)
        (claimed,) = await store.claim_runs("w", 30, run_ids=[ids[-1]])
        await delete_and_die(store, "r")
        commit = Commit(
            run_id=ids[-1], token=claimed.claim.token, change=Change(status=Status.COMPLETED)
        )
        assert isinstance(await outcome_of(store, commit), NotFound)
        assert await store.renew([claimed.claim], 30) == [None]


@pytest.mark.proves("I23", "I25")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("has_rules", [False, True], ids=["plain", "rules"])
@ON
async def test_a_queue_hands_out_no_task_of_a_deleted_run(
    on: Any, has_rules: bool, clock: ManualClock
) -> None:
    """Tasks of other runs are handed out; those of the tree never are."""
    async with on(clock=clock) as store:
        await plant(store, "r", CHILDREN)
        await begin(store, "another")
        await done(store, Commit(run_id="another", tasks=(Task(id="task", run_id="another"),)))
        queue = store.queue()
        if has_rules:
            await queue.set_policy(QueuePolicy(queue="default", concurrency=100), by="test")
        await delete_and_die(store, "r")
        taken = await queue.take_many(["default"], owner="w", visibility=30, limit=100)
        taken += await queue.take_many(["default"], owner="w", visibility=30, limit=100)
        assert [one.task.run_id for one in taken] == ["another"]
