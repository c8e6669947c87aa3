"""Writers that are killed in the middle of their work, and what must be true when all is over.

::

    writer ── claim, commit, commit … ──▶ one SQLite file
      │ └── ledger: "asked …" before, "done …" after each commit, synced
      └── a word for each acknowledged commit ──▶ parent: after a random number of them,
                                 kill -9 of a random writer, and a new one in its place

The writers share the runs: each claims some for a short lease, appends a few commits to each by way
of a journal, so that commits of several runs travel together, and gives them back. A run whose
writer was killed is taken over when its lease ends. Commits can be made again from their names, so
that ledgers stay short and the checker sees what was really sent.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from contextlib import closing
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Raw

from outlast.engine.runner.group_commit import CommitBatcher
from outlast.errors import Refused
from outlast.model import Claim, Commit, Committed, Event, Run
from outlast.model.claim import ClaimedRun
from outlast.model.times import NOW
from outlast.stores.sqlite import SqliteStore
from outlast.testkit.checker import Dump, Evidence, Fate, Op, check, dump
from tests.stores.sqlite_processes.crew import Member

LEASE = 0.5
HELD = 6
TURNS = 5


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a ledger. `at` is a time that all processes of the machine share."""

    what: str  # asked, done, refused, claimed
    at: int
    name: str = ""  # of a commit: "<writer>-<number>"
    run_id: str = ""
    expected: int = 0
    token: int = 0
    release: bool = False
    begun: int = 0  # of a claim
    committed: Committed | None = None
    claim: Claim | None = None


class Outcome(NamedTuple):
    """What happened, and which promises were broken."""

    acked: int
    unknown: int  # asked for by writers who did not live to hear the answer
    kills: int
    events: int
    claims: int
    violations: list[str]


def write_and_kill(
    folder: Path, *, commits: int, writers: int, runs: int, between: tuple[int, int], seed: int
) -> Outcome:
    """Let writers commit until there are so many; kill one every so often (`between`)."""
    path = str(folder / "store.db")
    asyncio.run(_prepare(path, [f"run-{number}" for number in range(runs)]))
    chance = random.Random(seed)
    acked = kills = hired = 0
    crew: list[Member] = []
    next_kill = chance.randint(*between)
    try:
        while acked < commits:
            while len(crew) < writers:
                crew.append(Member(_write, (path, str(folder), hired)))
                hired += 1
            for pipe in wait([member.pipe for member in crew]):
                assert isinstance(pipe, Pipe)
                pipe.recv()  # EOFError: a writer has died by itself, and said on stderr why
                acked += 1
            if acked >= next_kill:
                crew.pop(chance.randrange(len(crew))).kill()
                kills += 1
                next_kill = acked + chance.randint(*between)
    finally:
        for member in crew:
            member.kill()
    return _judge(path, folder, kills + len(crew))


async def _prepare(path: str, run_ids: list[str]) -> None:
    async with SqliteStore(path) as store:
        runs = [Run(id=id, uid=f"u-{id}", workflow="w", runnable_at=NOW) for id in run_ids]
        await store.commit([Commit(run_id=run.id, create=run) for run in runs])


# -- writers --------------------------------------------------------------------------------------


def _write(pipe: Pipe, path: str, folder: str, writer: int) -> None:
    asyncio.run(_Writer(pipe, path, folder, writer).work())


class _Writer:
    def __init__(self, pipe: Pipe, path: str, folder: str, writer: int) -> None:
        self._pipe = pipe
        self._store = SqliteStore(path)
        self._journal = CommitBatcher(self._store)
        self._name = f"w{writer}"
        self._count = 0
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self._ledger = os.open(f"{folder}/{self._name}.ledger", flags, 0o600)

    async def work(self) -> None:
        """Until somebody kills it."""
        async with self._store:
            while True:
                begun = time.monotonic_ns()
                claimed = await self._store.claim_runs(self._name, LEASE, limit=HELD)
                for one in claimed:
                    self._note(Line("claimed", time.monotonic_ns(), begun=begun, claim=one.claim))
                await asyncio.gather(*(self._turns(one) for one in claimed))
                if not claimed:
                    await self._store.clock.sleep(LEASE / 10)  # the dead hold them all

    async def _turns(self, claimed: ClaimedRun) -> None:
        sequence = claimed.run.sequence
        for turn in range(TURNS):
            self._count += 1
            name = f"{self._name}-{self._count}"
            asked = Line(
                "asked",
                time.monotonic_ns(),
                name,
                run_id=claimed.run.id,
                expected=sequence,
                token=claimed.claim.token,
                release=turn == TURNS - 1,
            )
            self._note(asked)
            try:
                committed = await self._journal.commit(commit_of(asked))
            except Refused:
                self._note(Line("refused", time.monotonic_ns(), name))
                return  # somebody has taken over
            self._note(Line("done", time.monotonic_ns(), name, committed=committed))
            self._pipe.send("acked")
            sequence = committed.sequence

    def _note(self, line: Line) -> None:
        os.write(self._ledger, msgspec.json.encode(line) + b"\n")
        os.fsync(self._ledger)


def commit_of(asked: Line) -> Commit:
    """The commit of that name: the same name gives the same one."""
    chance = random.Random(asked.name)
    events = tuple(
        Event(
            type="step.noted",
            run_id=asked.run_id,
            id=f"{asked.name}-{number}",
            data=Raw(b'"%s"' % (b"x" * chance.choice((0, 50, 50, 3_000)))),
        )
        for number in range(chance.choice((1, 1, 2, 5)))
    )
    return Commit(
        run_id=asked.run_id,
        id=asked.name,
        uid=f"u-{asked.run_id}",
        expected=asked.expected,
        token=asked.token,
        release=asked.release,
        events=events,
    )


# -- the verdict ----------------------------------------------------------------------------------


def _judge(path: str, folder: Path, kills: int) -> Outcome:
    ops = [op for ledger in sorted(folder.glob("*.ledger")) for op in _ops(ledger)]
    final = asyncio.run(_dump(path))
    violations = [str(violation) for violation in check(Evidence(ops=ops, dumps=[final]))]
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("PRAGMA integrity_check").fetchall()
    if rows != [("ok",)]:
        violations.append(f"integrity_check: {rows[:3]}")
    acked = sum(op.fate is Fate.OK and op.name == "commit" for op in ops)
    events = sum(len(dumped.events) for dumped in final.runs.values())
    claims = sum(op.name == "claim_runs" for op in ops)
    unknown = sum(op.fate is Fate.UNKNOWN for op in ops)
    return Outcome(acked, unknown, kills, events, claims, violations)


async def _dump(path: str) -> Dump:
    async with SqliteStore(path) as store:
        return await dump(store)


def _ops(ledger: Path) -> list[Op]:
    """What one writer did, as the checker wants it. A last line may be cut off: it says nothing
    that was not said before."""
    ops: list[Op] = []
    open_commits: dict[str, Line] = {}
    for text in ledger.read_bytes().split(b"\n")[:-1]:
        line = msgspec.json.decode(text, type=Line)
        if line.what == "asked":
            open_commits[line.name] = line
        elif line.what == "claimed":
            ops.append(
                Op(
                    name="claim_runs",
                    fate=Fate.OK,
                    begun=line.begun,
                    ended=line.at,
                    result=line.claim,
                )
            )
        else:
            asked = open_commits.pop(line.name)
            fate = Fate.OK if line.what == "done" else Fate.FAILED
            ops.append(_op(asked, fate, line.at, line.committed))
    return ops + [_op(asked, Fate.UNKNOWN, asked.at, None) for asked in open_commits.values()]


def _op(asked: Line, fate: Fate, ended: int, result: Committed | None) -> Op:
    return Op(
        name="commit",
        fate=fate,
        begun=asked.at,
        ended=ended,
        client=asked.name.partition("-")[0],
        value=commit_of(asked),
        result=result,
    )
