"""A process that dies is known to be dead at once by its lock; one that lives is never taken for dead."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest

from outlast.model import Change, Commit, Run, Task
from outlast.model.times import NOW
from outlast.ports import SystemClock
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.liveness import Liveness
from tests.stores.sqlite_processes.crew import Member

pytestmark = pytest.mark.proves("I5", "I6")

HOUR = 3600.0
CLOCK = SystemClock()
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
async def here(path: Path) -> AsyncIterator[SqliteStore]:
    """A store that checks, and a run and a task that can be claimed."""
    async with SqliteStore(path) as store:
        task = Task(run_id="r", id="t")
        await store.commit([Commit(run_id="r", create=Run(id="r", runnable_at=NOW), tasks=(task,))])
        yield store


def claim_and_live(
    pipe: Pipe, path: Path, owner: str, then: Callable[[SqliteStore], object]
) -> None:
    """Claim all there is for an hour, say so, and live until killed. `then` is called in between."""

    async def live() -> None:
        async with SqliteStore(path) as store:
            assert await store.claim_runs(owner, HOUR)
            await store.claim_task("r", "t", owner, ttl=HOUR)
            pipe.send(then(store))
            await asyncio.Event().wait()

    asyncio.run(live())


def nothing(_store: SqliteStore) -> None:
    """The process just lives."""


def forks(_store: SqliteStore) -> int:
    """It forks a child, which does nothing for as long as it lives."""
    pid = os.fork()
    if not pid:
        while True:
            signal.pause()
    return pid


def forks_and_the_child_ends(_store: SqliteStore) -> None:
    """It forks a child, which ends."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def starts_a_program(_store: SqliteStore) -> int:
    """It starts a program that outlives it."""
    return subprocess.Popen(SLEEP, start_new_session=True).pid


def starts_a_step_process(store: SqliteStore) -> int:
    """It starts a program that inherits its lock, as a step process does."""
    return subprocess.Popen(
        SLEEP, start_new_session=True, pass_fds=tuple(store.inherited_files())
    ).pid


def becomes_another_program(_store: SqliteStore) -> None:
    """It is replaced, as by `outlast dev` when the code has changed."""
    os.execv(sys.executable, SLEEP)


class Doomed:
    """A process that has claimed the run and the task."""

    def __init__(
        self, path: Path, owner: str = "doomed", then: Callable[[SqliteStore], object] = nothing
    ) -> None:
        self._member = Member(claim_and_live, (path, owner, then))
        self.pid = self._member.process.pid or 0
        self.answer = self._member.pipe.recv() if then is not becomes_another_program else None

    def kill(self) -> None:
        """`kill -9`."""
        self._member.kill()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


async def started(
    path: Path, owner: str = "doomed", then: Callable[[SqliteStore], object] = nothing
) -> Doomed:
    """A process that has claimed everything."""
    return await asyncio.to_thread(Doomed, path, owner, then)


async def ended(pid: int) -> None:
    """Kill a process that is not our child."""
    os.kill(pid, signal.SIGKILL)


def lock_files(store: SqliteStore) -> list[Path]:
    """The lock files of other processes."""
    liveness = store.database.liveness
    return [file for file in liveness.folder.iterdir() if file.name != liveness._nonce]


async def taken_over(store: SqliteStore, owner: str = "heir") -> None:
    """Wait until the run and the task can be claimed."""
    notifier = store.notifier
    run = task = None
    async with asyncio.timeout(60):
        while run is None or task is None:
            wakeups = notifier.wakeups
            run = run or next(iter(await store.claim_runs(owner, HOUR)), None)
            task = task or await store.claim_task("r", "t", owner, ttl=HOUR)
            if run is None or task is None:
                await notifier.wait(CLOCK, 60, since=wakeups)


async def is_left_alone(store: SqliteStore) -> bool:
    """Whether two checks find that nothing can be taken over, and that the owner is not gone."""
    liveness = store.database.liveness
    for _ in range(2):
        liveness._checked_at = 0.0
        if await store.claim_runs("heir", HOUR) or await store.owner_gone("doomed"):
            return False
    return True


async def test_a_killed_process_is_taken_over_at_once(here: SqliteStore, path: Path) -> None:
    """While it lives nothing can be claimed. After `kill -9` a process that waits is woken, claims what had a lease of
    an hour, and removes the lock file."""
    doomed = await started(path)
    assert await is_left_alone(here)
    (file,) = lock_files(here)
    doomed.kill()
    await taken_over(here)
    assert await here.owner_gone("doomed")
    here.database.liveness._checked_at = 0.0
    await here.claim_runs("heir", HOUR)
    assert not file.exists()


async def test_a_new_process_checks_at_once(here: SqliteStore, path: Path) -> None:
    """A program that is started again continues what the killed one has left, with its first claim."""
    await here.close()
    doomed = await started(path)
    doomed.kill()
    async with SqliteStore(path) as heir:
        (claimed,) = await heir.claim_runs("heir", HOUR)
        assert claimed.run.id == "r"


async def test_a_restart_under_the_same_name_is_no_second_life(
    here: SqliteStore, path: Path
) -> None:
    """The claims of a dead process with the same owner name are ended before the new one registers."""
    await here.close()
    doomed = await started(path, "worker-1")
    doomed.kill()
    async with SqliteStore(path) as heir:
        assert await heir.claim_runs("worker-1", HOUR)


async def test_of_two_processes_with_one_name_one_death_ends_no_lease(
    here: SqliteStore, path: Path
) -> None:
    """Whose claims they are cannot be told from the name: the lease decides."""
    assert not await here.claim_runs("doomed", HOUR, run_ids=["other"])
    doomed = await started(path)
    doomed.kill()
    assert await is_left_alone(here)


async def test_a_stopped_process_is_alive(here: SqliteStore, path: Path) -> None:
    """SIGSTOP: it renews nothing, and holds its lock. Only its lease counts. After SIGCONT its claims are valid."""
    doomed = await started(path)
    try:
        doomed.send(signal.SIGSTOP)
        assert await is_left_alone(here)
        doomed.send(signal.SIGCONT)
        assert await is_left_alone(here)
    finally:
        doomed.kill()
    await taken_over(here)


async def test_a_forked_child_does_not_unlock(here: SqliteStore, path: Path) -> None:
    """The child has closed its copy of the file; the lock stays with the parent."""
    doomed = await started(path, then=forks_and_the_child_ends)
    try:
        assert await is_left_alone(here)
    finally:
        doomed.kill()


@pytest.mark.parametrize("then", [forks, starts_a_program])
async def test_children_do_not_keep_their_parent_alive(
    here: SqliteStore, path: Path, then: Callable[[SqliteStore], int]
) -> None:
    """Neither a forked child nor a program that it has started holds the lock after its death."""
    doomed = await started(path, then=then)
    try:
        doomed.kill()
        await taken_over(here)
    finally:
        await ended(doomed.answer)  # type: ignore[arg-type]


async def test_a_step_process_is_part_of_its_owner(here: SqliteStore, path: Path) -> None:
    """What a step process does is not over when its owner is killed: the owner is dead when both are."""
    doomed = await started(path, then=starts_a_step_process)
    assert isinstance(doomed.answer, int)
    doomed.kill()
    try:
        assert await is_left_alone(here)
    finally:
        await ended(doomed.answer)
    await taken_over(here)


async def test_a_process_that_becomes_another_program_is_dead(
    here: SqliteStore, path: Path
) -> None:
    """`exec` keeps the process id and releases the lock."""
    doomed = await started(path, then=becomes_another_program)
    try:
        await taken_over(here)
    finally:
        doomed.kill()


@pytest.mark.parametrize("what", ["missing", "replaced", "other boot", "other inode"])
async def test_without_proof_the_lease_decides(here: SqliteStore, path: Path, what: str) -> None:
    """A lock file that is missing or another one, or a row of another machine, proves nothing."""
    doomed = await started(path)
    (file,) = lock_files(here)
    doomed.kill()
    if what == "missing":
        file.unlink()
    if what == "replaced":
        (file.parent / "another").touch()
        (file.parent / "another").replace(file)
    column = {"other boot": "boot = 'another'", "other inode": "inode = inode || '0'"}.get(what)
    if column:
        await here.database.opened().writer.write(
            lambda db: db.execute(f"UPDATE owners SET {column} WHERE owner = 'doomed'"),
            rows=1, inline=True, timeout=None,
        )  # fmt: skip
    assert await is_left_alone(here)


@pytest.mark.parametrize("kind", ["nfs4", "9p", "virtiofs", "fuse.sshfs", "vboxsf", ""])
async def test_only_local_filesystems_count(path: Path, kind: str) -> None:
    """Elsewhere another machine may hold a lock that this one does not see."""
    async with SqliteStore(path) as store:
        store.database.liveness = Liveness(path, filesystem=lambda _: kind)
        assert await store.claim_runs("w", HOUR) == []
        assert store.database.liveness.unsupported
        assert not await store.owner_gone("w")
        assert not store.inherited_files()


async def test_a_folder_that_cannot_be_used_leaves_the_lease(path: Path) -> None:
    """The store works as before, and says why deaths are not detected."""
    path.with_name(f"{path.name}-workers").touch()
    async with SqliteStore(path) as store:
        assert await store.claim_runs("w", HOUR) == []
        assert "cannot be used" in store.database.liveness.unsupported
        assert store.describe()["liveness"] == store.database.liveness.unsupported


async def test_two_stores_in_one_process_do_not_judge_each_other(path: Path) -> None:
    """Each has a lock of its own, and closing one leaves the other's."""
    async with SqliteStore(path) as one:
        assert await one.claim_runs("doomed", HOUR) == []
        await one.commit([Commit(run_id="r", create=Run(id="r", runnable_at=NOW))])
        assert await one.claim_runs("doomed", HOUR)
        async with SqliteStore(path) as two:
            assert await is_left_alone(two)
        async with SqliteStore(path) as two:
            assert await is_left_alone(two)
        folder = one.database.liveness.folder
        assert lock_files(one) == []
        assert (folder.stat().st_mode & 0o777, next(folder.iterdir()).stat().st_mode & 0o777) == (
            0o700,
            0o600,
        )
    assert not folder.exists()


async def test_a_run_that_kills_its_owners_waits_for_its_lease(
    here: SqliteStore, path: Path
) -> None:
    """The first death is followed by a takeover at once. After the second without a commit in between only lease expiry
    counts; after a commit it is a first death again."""
    for owner in ("first", "second"):  # the second takes over from the first
        (await started(path, owner)).kill()
    here.database.liveness._checked_at = 0.0
    assert await here.claim_runs("heir", HOUR) == []
    assert await here.owner_gone("second")
    await here.commit([Commit(run_id="r", force=True, change=Change(runnable_at=NOW))])
    (await started(path, "third")).kill()
    here.database.liveness._checked_at = 0.0
    assert await here.claim_runs("heir", HOUR)


async def test_process_ids_of_containers_do_not_matter(here: SqliteStore, path: Path) -> None:
    """Two PID namespaces that share a folder: the process has an id that is another's here."""
    unshare = shutil.which("unshare")
    if unshare is None or not await _succeeds(unshare, "--pid", "--fork", "true"):
        pytest.skip("this machine allows no PID namespaces (unshare --pid)")
    code = (
        "import asyncio, sys\n"
        "from outlast.stores.sqlite import SqliteStore\n"
        "async def live():\n"
        "    async with SqliteStore(sys.argv[1]) as store:\n"
        "        assert await store.claim_runs('doomed', 3600)\n"
        "        print('claimed', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(live())\n"
    )
    container = await asyncio.create_subprocess_exec(
        *(unshare, "--pid", "--fork", "--kill-child", sys.executable, "-c", code, str(path)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert container.stdout is not None
    assert await container.stdout.readline() == b"claimed\n"
    assert await is_left_alone(here)
    container.kill()
    await container.wait()
    await taken_over(here)


async def _succeeds(*command: str) -> bool:
    return await (await asyncio.create_subprocess_exec(*command)).wait() == 0
