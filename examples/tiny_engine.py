"""An engine of your own, on the store alone: `outlast.ports`, `outlast.model`, and a store.

It has nothing of outlast's engine. A *plan* is a graph of tasks; workers in as many processes as
you like take what is ready and hand in what came of it::

    begin ── commit: offer the first tasks ──▶ store ◀── find, claim, extend ── worker
                                                 ▲                                │
                                                 └── one commit per cycle: ◀──────┘
                                                     done k, its value as a fact, the claim on k,
                                                     the tasks that are ready now, a snapshot

Whoever hands in a result also offers what it makes possible, in the same commit, so there is no
moment at which a crash could leave a plan with nothing to do. `expected` keeps two workers that
finish at once from overlooking each other: the second gets a `Conflict`, looks again, and commits.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import msgspec
from msgspec import Raw

from outlast.errors import Conflict, Fenced
from outlast.model import Change, Claim, Commit, Event, Fact, Run, Snapshot, Status, Task
from outlast.ports import Capability, Store
from outlast.stores.sqlite import SqliteStore

LEASE = 1.0
SNAPSHOT_EVERY = 4  # events


class Job(NamedTuple):
    """A task of a plan: what it does, and the tasks whose values it needs."""

    work: Callable[..., bytes]
    needs: tuple[str, ...] = ()


Plan = dict[str, Job]


class State(msgspec.Struct):
    """What a history folds to: names and hashes. Values stay where they are."""

    sequence: int = 0
    offered: list[str] = []
    done: dict[str, str] = {}

    def after(self, event: Event) -> State:
        offered, done = self.offered, self.done
        if event.type == "task.offered":
            offered = [*offered, event.step_name]
        elif event.type == "task.done":
            done = {**done, event.step_name: msgspec.json.decode(event.data)["value"]}
        return State(sequence=self.sequence + 1, offered=offered, done=done)

    def ready(self, plan: Plan) -> list[str]:
        """What can be done now and was not offered yet."""
        return [
            name
            for name, job in plan.items()
            if name not in self.offered and all(need in self.done for need in job.needs)
        ]


class TinyEngine:
    """Keeps plans going. It has no memory of its own: any number of them may run anywhere."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self.store = store
        self.plan = plan

    async def begin(self, run_id: str) -> None:
        """Start a run of the plan; `RunExists` if there is one."""
        run = Run(id=run_id, workflow="tiny", status=Status.RUNNING)
        events, tasks = self._offers(run_id, State())
        [outcome] = await self.store.commit(
            [Commit(run_id=run_id, create=run, events=events, tasks=tasks)]
        )
        if isinstance(outcome, Exception):
            raise outcome

    async def recover(self, run_id: str) -> State:
        """Rebuild the state: from the last snapshot and what came after it, or from the start."""
        state = State()
        if Capability.SNAPSHOTS in self.store.capabilities:
            if snapshot := await self.store.find_snapshot(run_id):
                state = msgspec.json.decode(snapshot.data, type=State)
        async for event in self.store.stream(run_id, after=state.sequence):
            state = state.after(event)
        return state

    async def hand_in(self, claim: Claim, value: bytes) -> None:
        """One cycle: record what a task gave and offer what is ready now. `Fenced` if the claim
        was lost: then somebody else does the task, and this value is forgotten."""
        run_id, name = claim.run_id, claim.task_id or ""
        fact = Fact.of(value, root=run_id)
        data = Raw(msgspec.json.encode({"value": fact.hash, "by": claim.owner}))
        done = Event(type="task.done", run_id=run_id, step_name=name, data=data)
        while True:
            before = await self.recover(run_id)
            after = before.after(done)
            offers, tasks = self._offers(run_id, after)
            ended = len(after.done) == len(self.plan)
            commit = Commit(
                run_id=run_id,
                uid=claim.uid,
                expected=before.sequence,
                events=(done, *offers),
                finishes=(claim,),
                facts=(fact,),
                tasks=tasks,
                snapshot=self._snapshot(run_id, before, (done, *offers)),
                change=Change(status=Status.COMPLETED) if ended else None,
            )
            [outcome] = await self.store.commit([commit])
            if isinstance(outcome, Conflict):
                continue  # somebody has finished a neighbour meanwhile: look again
            if isinstance(outcome, Exception):
                raise outcome
            return

    async def value(self, run_id: str, name: str) -> bytes:
        """What a task gave."""
        hash = (await self.recover(run_id)).done[name]
        return await self.store.load_fact(hash, root=run_id)

    def _offers(self, run_id: str, state: State) -> tuple[tuple[Event, ...], tuple[Task, ...]]:
        ready = state.ready(self.plan)
        events = (Event(type="task.offered", run_id=run_id, step_name=name) for name in ready)
        tasks = (Task(id=name, run_id=run_id, name=name) for name in ready)
        return tuple(events), tuple(tasks)

    def _snapshot(self, run_id: str, before: State, events: tuple[Event, ...]) -> Snapshot | None:
        state = before
        for event in events:
            state = state.after(event)
        if state.sequence // SNAPSHOT_EVERY == before.sequence // SNAPSHOT_EVERY:
            return None
        return Snapshot(run_id=run_id, sequence=state.sequence, data=msgspec.json.encode(state))


class TinyWorker:
    """Takes tasks, one at a time, wherever they are offered."""

    def __init__(self, engine: TinyEngine, name: str, *, lease: float = LEASE) -> None:
        self.engine = engine
        self.store = engine.store
        self.name = name
        self.lease = lease

    async def work_once(self) -> str | None:
        """Do one task and say which; None if there is none to be had."""
        for task in await self.store.find_available_tasks(limit=10):
            claim = await self.store.claim_task(task.run_id, task.id, self.name, ttl=self.lease)
            if claim is not None:  # None: another one was faster
                try:
                    await self._do(claim, task)
                except Fenced:
                    return None
                return task.id
        return None

    async def _do(self, claim: Claim, task: Task) -> None:
        job = self.engine.plan[task.name]
        state = await self.engine.recover(task.run_id)
        hashes = [state.done[need] for need in job.needs]  # only these values are read
        values = [await self.store.load_fact(hash, root=task.run_id) for hash in hashes]
        working = asyncio.ensure_future(asyncio.to_thread(job.work, *values))
        while not (await asyncio.wait([working], timeout=self.lease / 3))[0]:
            claim = await self.store.extend(claim, timedelta(seconds=self.lease / 3))
        if working.exception() is not None:
            await self.store.release([claim])  # others need not wait for the lease
        await self.engine.hand_in(claim, working.result())


# -- the show: two workers, of which one is killed ------------------------------------------------


def hang_if_first(news: bytes, weather: bytes) -> bytes:
    if sys.argv[-1] == "first":
        print("first: writing …", flush=True)
        threading.Event().wait()  # it is killed here
    return news + b" " + weather


NEWSLETTER: Plan = {
    "news": Job(lambda: b"All is well."),
    "weather": Job(lambda: b"It rains."),
    "write": Job(hang_if_first, needs=("news", "weather")),
    "shout": Job(bytes.upper, needs=("write",)),
    "whisper": Job(bytes.lower, needs=("write",)),
    "send": Job(lambda *texts: b" | ".join(texts), needs=("shout", "whisper")),
}


async def work(path: str, name: str) -> None:
    async with SqliteStore(path) as store:
        worker = TinyWorker(TinyEngine(store, NEWSLETTER), name)
        while not (await store.get("june")).status.terminal:
            if task := await worker.work_once():
                print(f"{name}: {task} is done", flush=True)
            else:
                await store.clock.sleep(0.1)  # all is claimed: look again


def run_worker(path: str, name: str) -> None:
    command = [sys.executable, __file__, "work", path, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"   {line}", end="")
            if "writing" in line:
                process.kill()
    print(f"   {name}: exit code {process.returncode}")


async def show(path: str) -> None:
    async with SqliteStore(path) as store:
        engine = TinyEngine(store, NEWSLETTER)
        await engine.begin("june")
        print("A worker is killed with SIGKILL while it writes:")
        await asyncio.to_thread(run_worker, path, "first")
        print("Another one waits until the claim is over, and goes on:")
        await asyncio.to_thread(run_worker, path, "second")
        print("The history:")
        async for event in store.stream("june"):
            print(f"   {event.sequence:3}  {event.type:13} {event.step_name}")
        snapshot = await store.load_snapshot("june")
        print(f"The last snapshot is at {snapshot.sequence}: a recovery begins there.")
        print(f"Sent: {(await engine.value('june', 'send')).decode()}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(sys.argv[2], sys.argv[3]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(show(sys.argv[1] if sys.argv[1:] else f"{folder}/tiny.db"))
