"""The WAL-reset storm: does our way of checkpointing the log survive a SQLite that has the race?

SQLite 3.7.0 to 3.51.2 can take the old length of the log for the length of the new one when a
checkpoint meets a commit of another connection; commits are lost or the file is damaged, without a
word. A storm is two processes that commit and two that checkpoint, as fast as they can, for some seconds:

- `settings`: bare loops on connections set up as ours, checkpointing as ours (a checkpoint under the
  writer's lock). The fastest way to meet the race, so the hardest test of the idea.
- `store`: the same through `SqliteStore.commit` and `SqliteStore.checkpoint`, the code that users run.
- `control`: bare loops that checkpoint by PASSIVE checkpoints without the lock, as automatic checkpoints
  do. On an affected SQLite some of these storms must end badly, or the campaign shows nothing.

After a storm every acknowledged row is there, no other is, and `PRAGMA integrity_check` agrees.

    ./dev prove wal_reset [--runs 100] [--seconds 4] [--store-runs 25] [--control-runs 80]

What is done is kept in .cache/prove/ and not repeated, so a campaign can be interrupted. `--fresh`
begins again.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import msgspec

from outlast.model import Commit, Committed, Event, Run
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.connection import Connection, configure, connect
from outlast.stores.sqlite.connection_worker import pauses
from outlast.stores.sqlite.driver_errors import is_busy
from outlast.stores.sqlite.wal import LOG_LIMIT_BYTES, WriteAheadLog, has_reset_race
from tests.stores.sqlite_processes.crew import Crew, pause_for

STATE = Path(__file__).parents[3] / ".cache" / "prove" / "wal_reset.json"
WRITERS = CHECKPOINTERS = 2
TABLE = "CREATE TABLE rows (writer INTEGER, number INTEGER)"
INSERT = "INSERT INTO rows VALUES (?, ?)"


class Storm(msgspec.Struct, frozen=True):
    """What one storm did. `damage` is empty if all is well."""

    kind: str
    sqlite: str
    commits: int
    checkpoints: int
    damage: str = ""


def main(argv: list[str]) -> int:
    """Run what is missing of the campaign and report all of it; 1 if our settings lost anything."""
    parser = argparse.ArgumentParser(prog="./dev prove wal_reset")
    parser.add_argument("--runs", type=int, default=100, help="storms with our settings")
    parser.add_argument("--store-runs", type=int, default=25, help="storms through SqliteStore")
    parser.add_argument("--control-runs", type=int, default=80, help="storms that may go wrong")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each storm")
    parser.add_argument("--fresh", action="store_true", help="forget what was done before")
    options = parser.parse_args(argv)
    if options.fresh:
        STATE.unlink(missing_ok=True)
    runs = (options.runs, options.store_runs, options.control_runs)
    wanted = dict(zip(KINDS, runs, strict=True))
    done = [storm for storm in _load() if storm.sqlite == sqlite3.sqlite_version]
    for kind in _missing(wanted, done):
        done.append(run_storm(kind, options.seconds))
        _save(done)
        _tell(done, wanted)
    return _report(done)


def run_storm(kind: str, seconds: float) -> Storm:
    """One storm on a new file, in memory if there is a folder for that: fsync would slow it down."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        path = f"{folder}/storm.db"
        write, checkpoint, prepare, inspect = KINDS[kind]
        prepare(path)
        crew = Crew()
        writers = [crew.hire(write, path, number, seconds) for number in range(WRITERS)]
        checkpointers = [crew.hire(checkpoint, path, seconds) for _ in range(CHECKPOINTERS)]
        crew.start_together()
        commits: list[int] = [crew.answer_of(one) for one in writers]
        checkpoints: list[int] = [crew.answer_of(one) for one in checkpointers]
        crew.dismiss()
        return Storm(
            kind, sqlite3.sqlite_version, sum(commits), sum(checkpoints), inspect(path, commits)
        )


# -- bare loops -----------------------------------------------------------------------------------


def _prepare_rows(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal").fetchall()
        connection.execute(TABLE)


def _inspect_rows(path: str, commits: list[int]) -> str:
    query = "SELECT number FROM rows WHERE writer = ? ORDER BY number"
    try:
        with closing(sqlite3.connect(path)) as connection:
            verdict = connection.execute("PRAGMA integrity_check").fetchall()
            rows = [connection.execute(query, (n,)).fetchall() for n in range(len(commits))]
    except sqlite3.DatabaseError as error:
        return f"{error}"
    return _compare([[number for (number,) in found] for found in rows], commits, verdict)


def _compare(found: list[list[int]], commits: list[int], verdict: list[tuple[str]]) -> str:
    if verdict != [("ok",)]:
        return f"integrity_check: {verdict[:3]}"
    for writer, (numbers, acked) in enumerate(zip(found, commits, strict=True)):
        if numbers != list(range(acked)):
            return f"writer {writer}: {acked} acknowledged, {len(numbers)} there"
    return ""


def _write_ours(pipe: Pipe, path: str, writer: int, seconds: float) -> int:
    connection = connect(path)
    configure(connection, synchronous="full", log_limit=LOG_LIMIT_BYTES)

    def commit(number: int) -> None:
        with _locked(connection):
            connection.execute(INSERT, (writer, number))

    return _until(pipe, seconds, commit)


def _checkpoint_ours(pipe: Pipe, path: str, seconds: float) -> int:
    connection, other = connect(path), connect(path)
    for one in (connection, other):
        configure(one, synchronous="full", log_limit=LOG_LIMIT_BYTES)
    log = WriteAheadLog(Path(path), other, limit=LOG_LIMIT_BYTES, hard_limit=LOG_LIMIT_BYTES)

    def checkpoint(_: int) -> None:
        with _locked(connection):
            log.checkpoint()

    return _until(pipe, seconds, checkpoint)


def _write_plainly(pipe: Pipe, path: str, writer: int, seconds: float) -> int:
    connection = _plain(path)

    def commit(number: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(INSERT, (writer, number))
        connection.execute("COMMIT")

    return _until(pipe, seconds, commit)


def _checkpoint_passively(pipe: Pipe, path: str, seconds: float) -> int:
    connection = _plain(path)
    return _until(
        pipe,
        seconds,
        lambda _: connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall(),
    )


def _plain(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    connection.execute("PRAGMA synchronous = full").fetchall()
    return connection


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    """A write transaction, waiting for the lock as lane.py does."""
    for pause in pauses():
        try:
            connection.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        pause_for(pause)
    yield
    connection.execute("COMMIT")


def _until(pipe: Pipe, seconds: float, act: Callable[[int], object]) -> int:
    """How often `act` succeeded in that time. Damage ends it early: the inspection will tell."""
    pipe.send("ready")
    pipe.recv()
    end = time.monotonic() + seconds
    number = 0
    try:
        while time.monotonic() < end:
            act(number)
            number += 1
    except sqlite3.DatabaseError as error:
        print(f"  during a storm: {error}", file=sys.stderr)
    return number


# -- through the store ----------------------------------------------------------------------------


def _prepare_store(path: str) -> None:
    async def create() -> None:
        async with SqliteStore(path) as store:
            for writer in range(WRITERS):
                await store.commit([Commit(run_id=f"w{writer}", create=Run(id=f"w{writer}"))])

    asyncio.run(create())


def _inspect_store(path: str, commits: list[int]) -> str:
    async def numbers() -> list[list[int]]:
        async with SqliteStore(path) as store:
            runs = [f"w{writer}" for writer in range(len(commits))]
            return [[event.sequence - 1 async for event in store.stream(run)] for run in runs]

    with closing(sqlite3.connect(path)) as connection:
        verdict = connection.execute("PRAGMA integrity_check").fetchall()
    return _compare(asyncio.run(numbers()), commits, verdict)


def _write_store(pipe: Pipe, path: str, writer: int, seconds: float) -> int:
    run_id = f"w{writer}"

    async def act(store: SqliteStore, number: int) -> None:
        event = Event(type="row", run_id=run_id)
        [outcome] = await store.commit([Commit(run_id=run_id, expected=number, events=(event,))])
        assert isinstance(outcome, Committed), outcome

    return asyncio.run(_with_store(pipe, path, seconds, act))


def _checkpoint_store(pipe: Pipe, path: str, seconds: float) -> int:
    return asyncio.run(_with_store(pipe, path, seconds, lambda store, _: store.checkpoint()))


async def _with_store(
    pipe: Pipe, path: str, seconds: float, act: Callable[[SqliteStore, int], object]
) -> int:
    number = 0
    async with SqliteStore(path) as store:
        pipe.send("ready")
        pipe.recv()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await act(store, number)  # type: ignore[misc]
            number += 1
    return number


KINDS = {
    "settings": (_write_ours, _checkpoint_ours, _prepare_rows, _inspect_rows),
    "store": (_write_store, _checkpoint_store, _prepare_store, _inspect_store),
    "control": (_write_plainly, _checkpoint_passively, _prepare_rows, _inspect_rows),
}


# -- the campaign ---------------------------------------------------------------------------------


def _missing(wanted: dict[str, int], done: list[Storm]) -> Iterator[str]:
    """The kinds still to run, the one that lacks most first, so that a part is a fair sample."""
    while True:
        share = {kind: sum(s.kind == kind for s in done) / n for kind, n in wanted.items() if n}
        kind = min(share, key=lambda kind: share[kind], default="")
        if not kind or share[kind] >= 1:
            return
        yield kind


def _tell(done: list[Storm], wanted: dict[str, int]) -> None:
    storm = done[-1]
    count = sum(one.kind == storm.kind for one in done)
    print(
        f"{storm.kind:8} {count:3}/{wanted[storm.kind]}  {storm.commits:7} commits  "
        f"{storm.checkpoints:7} checkpoints  {storm.damage or 'ok'}",
        flush=True,
    )


def _report(done: list[Storm]) -> int:
    version = sqlite3.sqlite_version
    print(f"\nSQLite {version}, {WRITERS} writers and {CHECKPOINTERS} checkpointers, all processes")
    for kind in KINDS:
        mine = [storm for storm in done if storm.kind == kind]
        bad = sum(bool(storm.damage) for storm in mine)
        commits, checkpoints = sum(s.commits for s in mine), sum(s.checkpoints for s in mine)
        print(
            f"{kind:8} {bad} of {len(mine)} bad, {commits:,} commits, {checkpoints:,} checkpoints"
        )
    if not has_reset_race(version):
        print("this SQLite does not have the race: nothing here could have failed")
    elif not any(storm.damage for storm in done if storm.kind == "control"):
        print("the control did not fail, so this says little: give it more --control-runs")
    return int(any(storm.damage for storm in done if storm.kind != "control"))


def _load() -> list[Storm]:
    return msgspec.json.decode(STATE.read_bytes(), type=list[Storm]) if STATE.exists() else []


def _save(done: list[Storm]) -> None:
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_bytes(msgspec.json.encode(done))
