"""The journal: many commits in one write, and one bad commit harms only itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outlast.engine.runner.group_commit import ATTEMPTS, MANY, CommitBatcher
from outlast.errors import Busy, Closed, NotFound, UnknownOutcome
from outlast.model import Commit, Committed, Creation, Event, Item, Outcome, Run, Send, Start
from outlast.stores.memory import MemoryStore


class Sick(MemoryStore):
    """A store that treats some runs badly, and remembers how it was called."""

    def __init__(self, **illness: Exception | int) -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self._illness = illness

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        self.calls.append([commit.run_id for commit in commits])
        for commit in commits:
            illness = self._illness.get(commit.run_id)
            if isinstance(illness, Exception):
                raise illness
            if isinstance(illness, int) and illness > 0:
                self._illness[commit.run_id] = illness - 1
                await super().commit(commits, atomic=atomic)
                raise UnknownOutcome("the answer was lost")
        return await super().commit(commits, atomic=atomic, timeout=timeout)


class Timed(MemoryStore):
    """A store that remembers how long each write might take."""

    timeout: float | None = None

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        self.timeout = timeout
        return await super().commit(commits, atomic=atomic, timeout=timeout)


def start(run_id: str) -> Commit:
    event = Event(type="x", run_id=run_id)
    return Commit(run_id=run_id, create=Run(id=run_id), events=(event,))


async def all_of(journal: CommitBatcher, *commits: Commit) -> list[Committed | BaseException]:
    calls = [journal.commit(commit, patience=30) for commit in commits]
    async with asyncio.timeout(20):
        return await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.proves("I3")
async def test_commits_that_are_ready_go_together() -> None:
    """Ten callers at once are one write; two commits of one run are two, in order."""
    store = Sick()
    journal = CommitBatcher(store)
    outcomes = await all_of(journal, *[start(f"r{n}") for n in range(10)])
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert len(store.calls) == 1
    again = [Commit(run_id="r1", events=(Event(type="y", run_id="r1"),)) for _ in range(2)]
    assert [o.sequence for o in await all_of(journal, *again) if isinstance(o, Committed)] == [2, 3]


async def test_a_large_commit_has_more_time() -> None:
    """A run that begins thousands of children would be cut off at every try; a small one is not kept
    waiting for a store that does not answer."""
    store = Timed()
    journal = CommitBatcher(store, timeout=1.0)
    await journal.commit(start("p"))
    assert store.timeout == pytest.approx(1.0, abs=0.01)
    children = tuple(Start(run=Run(id=f"p~{n}", parent="p")) for n in range(5000))
    await journal.commit(Commit(run_id="p", starts=children))
    assert store.timeout == pytest.approx(6.0, abs=0.01)


@pytest.mark.proves("I3", "I12")
@pytest.mark.parametrize("error", [RuntimeError("a driver's own"), KeyError("x"), OSError("gone")])
async def test_a_poison_commit_harms_only_itself(error: Exception) -> None:
    """Whatever the store raises for one run, the others are written and its caller is told."""
    journal = CommitBatcher(Sick(bad=error))
    good, bad, fine = await all_of(journal, start("a"), start("bad"), start("z"))
    assert isinstance(good, Committed)
    assert isinstance(fine, Committed)
    assert bad is error
    await journal.drained()


@pytest.mark.proves("C-03", "I3")
async def test_a_lost_answer_is_settled() -> None:
    """A batch whose answer was lost is found written, and nothing is written twice."""
    store = Sick(b=1)
    journal = CommitBatcher(store)
    outcomes = await all_of(journal, start("a"), start("b"))
    assert [isinstance(o, Committed) and o.again for o in outcomes] == [True, True]
    assert await store.last_sequence("b") == 1


@pytest.mark.proves("C-03", "I3")
async def test_a_lost_answer_to_one_commit_is_settled() -> None:
    """So is one that was alone: its caller hears what became of it, not that nobody knows."""
    store = Sick(a=2)
    (outcome,) = await all_of(CommitBatcher(store), start("a"))
    assert isinstance(outcome, Committed)
    assert outcome.again
    assert store.calls == [["a"], ["a"], ["a"]]
    assert await store.last_sequence("a") == 1


@pytest.mark.proves("I24")
async def test_a_locked_run_keeps_only_itself_waiting() -> None:
    """While one run is busy the others go on; what comes next for that run waits its turn."""

    class Locked(MemoryStore):
        free = False

        async def commit(
            self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
        ) -> list[Outcome]:
            outcomes = await super().commit(
                [c for c in commits if self.free or c.run_id != "held"], atomic=atomic
            )
            answers = iter(outcomes)
            return [
                next(answers) if self.free or c.run_id != "held" else Busy("locked")
                for c in commits
            ]

    store = Locked()
    journal = CommitBatcher(store)
    held = asyncio.create_task(journal.commit(start("held")))
    assert isinstance(await journal.commit(start("a")), Committed)
    assert isinstance(await journal.commit(start("b")), Committed)
    assert not held.done()
    store.free = True
    assert isinstance(await held, Committed)


async def test_a_refusal_is_raised() -> None:
    """A refused commit raises where it was made."""
    with pytest.raises(NotFound):
        await CommitBatcher(MemoryStore()).commit(Commit(run_id="nobody", fired=("t",)))


@pytest.mark.proves("I12")
async def test_too_few_answers_are_an_error() -> None:
    """A store that forgets to answer is found out, and nobody waits for ever."""

    class Forgetful(MemoryStore):
        async def commit(
            self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
        ) -> list[Outcome]:
            return (await super().commit(commits, atomic=atomic))[:-1]

    outcomes = await all_of(CommitBatcher(Forgetful()), start("a"), start("b"))
    assert all(isinstance(outcome, Exception) for outcome in outcomes)


class Mute(MemoryStore):
    """A store that answers nothing any more: the first time it fails, and then it is silent."""

    def __init__(self) -> None:
        super().__init__()
        self._has_failed = False
        self.is_silent = asyncio.Event()

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        if self._has_failed:
            self.is_silent.set()
            await asyncio.Event().wait()
        self._has_failed = True
        raise UnknownOutcome("the connection broke")


@pytest.mark.proves("I30")
async def test_a_store_that_does_not_answer_keeps_nobody_who_is_to_end() -> None:
    """More commits than are settled at once, and none is answered: whoever closes goes, and every
    caller hears of it, also one whose commit waits behind another of its run."""
    store = Mute()
    journal = CommitBatcher(store)
    calls = [asyncio.create_task(journal.commit(start(f"r{n}"))) for n in range(20)]
    await store.is_silent.wait()
    behind = asyncio.create_task(journal.commit(Commit(run_id="r0")))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await journal.close(0.01)
        outcomes = await asyncio.gather(*calls, behind, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[:-1])
    assert isinstance(outcomes[-1], Closed)


class Server(Sick):
    """A store that is given two batches at once, and answers when it is let go on."""

    batches_at_once = 2

    def __init__(self) -> None:
        super().__init__()
        self.flying: list[list[Commit]] = []
        self.most_flying = 0
        self.meetings: list[str] = []

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        for other in (one for batch in self.flying for one in batch):
            mine = {name for commit in commits for name in touched(commit)}
            self.meetings += mine & touched(other)
            if Creation.REPLACE in (other.creation, *(commit.creation for commit in commits)):
                self.meetings.append(f"{other.run_id} is replaced")
        self.flying.append(list(commits))
        self.most_flying = max(self.most_flying, len(self.flying))
        for _ in range(20):  # long enough for the next to come
            await asyncio.sleep(0)
        self.flying.remove(list(commits))
        return await super().commit(commits, atomic=atomic, timeout=timeout)


def touched(commit: Commit) -> set[str]:
    return {commit.run_id, *(send.run_id for send in commit.sends)}


@pytest.mark.proves("I3")
async def test_many_commits_are_two_batches_on_their_way() -> None:
    """Each has half of the runs; few go as one."""
    store = Server()
    journal = CommitBatcher(store)
    await all_of(journal, *[start(f"r{n}") for n in range(MANY)])
    assert [len(call) for call in store.calls] == [MANY // 2, MANY // 2]
    assert store.most_flying == 2
    await all_of(journal, *[start(f"few{n}") for n in range(MANY - 1)])
    assert [len(call) for call in store.calls[2:]] == [MANY - 1]


def writes(run: str, to: str) -> Commit:
    """An event, and an item for a run."""
    event, send = Event(type="y", run_id=run), Send(run_id=to, item=Item(kind="signal"))
    return Commit(run_id=run, events=(event,), sends=(send,))


@pytest.mark.proves("I3")
async def test_batches_on_their_way_never_touch_the_same_run() -> None:
    """A run's commits stay in order, and what is sent to a run waits for that run."""
    store = Server()
    journal = CommitBatcher(store)
    runs = [f"r{n}" for n in range(2 * MANY)]
    await all_of(journal, start("to"), *[start(run) for run in runs])
    commits = [*(writes(run, "to") for run in runs), *(writes(run, run) for run in runs)]
    outcomes = [one for one in await all_of(journal, *commits) if isinstance(one, Committed)]
    assert [one.sequence for one in outcomes if one.run_id == "r9"] == [2, 3]
    assert (await store.get("to")).inbox == len(runs)
    assert (store.meetings, store.most_flying) == ([], 2)


@pytest.mark.parametrize("place", [0, MANY])
async def test_what_replaces_a_tree_meets_nothing(place: int) -> None:
    """Neither what came before it nor what comes after is on its way meanwhile."""
    store = Server()
    journal = CommitBatcher(store)
    runs = [f"r{n}" for n in range(3 * MANY)]
    await all_of(journal, *[start(run) for run in runs])
    commits = [writes(run, run) for run in runs[1:]]
    replacing = Commit(run_id="r0", create=Run(id="r0"), creation=Creation.REPLACE, force=True)
    commits.insert(place, replacing)
    outcomes = await all_of(journal, *commits)
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert (store.meetings, store.most_flying) == ([], 2)


class Contended(Sick):
    """A store in which another process holds a run when it is first sent to."""

    times = 1

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        if self.times and any(commit.sends for commit in commits):
            self.times -= 1
            self.calls.append([commit.run_id for commit in commits])
            return [Busy("locked") for _ in commits]
        return await super().commit(commits, atomic=atomic, timeout=timeout)


@pytest.mark.proves("I3", "I24")
async def test_commits_that_met_the_same_lock_are_written_together() -> None:
    """Children of one parent would lock each other out if each were retried alone."""
    store = Contended()
    journal = CommitBatcher(store)
    runs = [f"r{n}" for n in range(9)]
    await all_of(journal, start("to"), start("too"), *[start(run) for run in runs])
    store.calls.clear()
    commits = [writes(run, "to" if n % 2 else "too") for n, run in enumerate(runs)]
    outcomes = await all_of(journal, *commits)
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert sorted(map(len, store.calls)) == [4, 5, 9]


async def test_a_commit_is_retried_as_long_as_its_caller_waits() -> None:
    """An owner waits until its claim is superseded; a caller outside for a few tries."""
    store = Sick(a=OSError("gone"))
    journal = CommitBatcher(store)
    waiting = asyncio.create_task(journal.commit(start("a")))
    while len(store.calls) <= ATTEMPTS:  # noqa: ASYNC110 - each is a try
        await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()
    async with asyncio.timeout(20):
        await journal.drained()
    with pytest.raises(OSError, match="gone"):
        await journal.commit(start("a"), patience=30)
