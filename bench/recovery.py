"""What a crash costs: workflows in flight, `kill -9` half way, and how it goes on.

500 ten-step workflows are under way in one process; a step takes 20 ms. When each has begun a step and
half of all steps have begun, the process is killed, and another is started on the same data at once.
Shown are the seconds from the kill until all workflows are done, and how many steps were begun more than
once: those that were running may be, others never.

Ours wait until nobody can hold the runs any more: PostgreSQL tells that their owner is gone, elsewhere
their lease (`--lease`, 5 s) has to end. DBOS takes up what its own executor id has left, without asking
whether that still lives. Absurd waits for the end of a claim of the same length. Of Restate the process
with the steps is killed, and its server, which knows of it, stays.

    ./dev bench recovery [--rounds 3] [--workflows 500] [--lease 5] [--alone] [--json FILE]
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench._arena import Arena, Size, compete
from bench._peers import ROOT, PeerMissing, environment_for, ours, theirs
from bench._restate import restate, start_handler
from bench._table import Aim, Contest, Entry
from bench.peers._clock import STEPS
from bench.peers.restate_steps import call, idle

PATIENCE = 300.0
LOOK = 0.01
PEERS = {"SQLite": ["DBOS"], "PostgreSQL": ["DBOS", "Absurd"], "Redis": list[str]()}
NEEDED = 2.0
"""Seconds beyond the lease, where one has to end."""

SETTLED = 12.0
"""Seconds that a server is up before its word on who is gone is taken: stores/postgres/liveness.py."""


class Crash(NamedTuple):
    """Seconds from the kill to the end of all, steps that were running at the kill at most (the last
    that each workflow had begun), steps that were begun again, and those of them that were not running."""

    seconds: float
    running: int
    repeated: int
    without_reason: int


PACKAGES = ("dbos", "restate", "absurd")


def main(argv: list[str]) -> int:
    """Measure."""
    sizes = {
        "workflows": Size(500, 500, "workflows in flight"),
        "lease": Size(5, 5, "seconds that a claim lasts"),
    }
    return compete(__name__, argv, {"crash": crashes}, rounds=3, sizes=sizes, peers=PACKAGES)


def crashes(arena: Arena) -> list[Contest]:
    """All in turn; shown by store, with Restate, which has its own, next to each."""
    contestants: dict[str, Callable[[], Crash]] = {}
    for store, peers in PEERS.items():
        contestants[f"outlast, {store}"] = partial(_ours, arena, store)
        for peer in peers if not arena.alone else ():
            contestants[f"{peer}, {store}"] = partial(_theirs, arena, store, peer)
    if not arena.alone:
        contestants["Restate"] = partial(_restate, arena)
    found, left_out = arena.alternate(contestants)
    contests = []
    for store, peers in PEERS.items():
        names = [f"outlast, {store}", *(f"{peer}, {store}" for peer in peers), "Restate"]
        missing = {who: left_out[who] for who in names if who in left_out}
        rounds = {who: found[who] for who in names if who in found}
        contests += _contests(arena, store, rounds, missing)
    return contests


def _contests(
    arena: Arena, store: str, rounds: dict[str, list[Crash]], missing: dict[str, str]
) -> list[Contest]:
    lease, count = arena.size("lease"), arena.size("workflows")
    is_told = store == "PostgreSQL"
    settings = {
        f"outlast, {store}": f"lease of {lease} s"
        + (f", {_waited(rounds, lease)} of {arena.rounds} rounds waited for it" if is_told else ""),
        f"Absurd, {store}": f"claim of {lease} s",
        "Restate": "its server stays",
    }

    def entries(value: Callable[[Crash], float]) -> list[Entry]:
        return [
            Entry(who, [value(one) for one in crashes], settings[who])
            for who, crashes in rounds.items()
        ]

    for who, crashes in rounds.items():
        told = ", ".join(f"{one.without_reason} of {one.repeated}" for one in crashes)
        running = max(one.running for one in crashes)
        note = f"at most {running} were running, needlessly begun again {told}"
        settings[who] = f"{settings.get(who, 'its own executor id')}; {note}"
    name = f"{count} workflows, kill -9, {store}"
    soon, few = [Aim(NEEDED + (0 if is_told else lease))], [Aim(float(count))]
    seconds, repeated = entries(lambda one: one.seconds), entries(lambda one: float(one.repeated))
    needless = entries(lambda one: float(one.without_reason))
    contests = [
        Contest(f"{name}: until all are done", "s", seconds, True, soon, missing),
        Contest(f"{name}: steps begun again", "steps", repeated, True, few, missing),
        Contest(f"{name}: begun again though not running", "steps", needless, True, [Aim(0.0)], missing),
    ]  # fmt: skip
    if not is_told:
        after = [
            Entry(seconds[0].who, [one - lease for one in seconds[0].values], seconds[0].settings)
        ]
        aims = [Aim(NEEDED)]
        contests.append(Contest(f"{contests[0].name} after the lease", "s", after, True, aims))
    return contests


def _waited(rounds: dict[str, list[Crash]], lease: int) -> int:
    """How often the lease had to end, though PostgreSQL can tell who is gone."""
    return sum(one.seconds >= lease for one in rounds["outlast, PostgreSQL"])


def _ours(arena: Arena, store: str) -> Crash:
    if store == "PostgreSQL":
        # On a server that was just started nobody is taken for dead; that is not what is measured.
        asyncio.run(arena.postgres().grow_older_than(SETTLED))
    return _crash(arena, arena.place(store), partial(ours, "bench._recovering"))


def _theirs(arena: Arena, store: str, peer: str) -> Crash:
    name = peer.lower()
    place = arena.place(store).removeprefix("sqlite:///")
    return _crash(arena, place, partial(theirs, name, f"{name}_recovering"))


def _crash(arena: Arena, place: str, program: Callable[..., list[str]]) -> Crash:
    """One life that is killed, and one that goes on."""
    count, ledger = arena.size("workflows"), _ledger(arena)

    errors = ledger.with_suffix(".errors")

    def life(how: str) -> subprocess.Popen[bytes]:
        args = program(how, place, str(ledger), str(count), str(arena.size("lease")))
        env = environment_for(args[0])
        with errors.open("wb") as said:
            return subprocess.Popen(args, env=env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said)

    first = life("begin")
    try:
        _wait_until_half(ledger, count, lambda: first.poll() is not None)
    finally:
        first.kill()
        ended = first.wait()
    if ended != -signal.SIGKILL:
        raise PeerMissing(f"it ended before it could be killed: {_last_line(errors)}")
    last = _last(ledger)
    killed = time.perf_counter()
    second = life("resume")
    try:
        if second.wait(PATIENCE) != 0:
            raise PeerMissing(f"what was left was not brought to its end: {_last_line(errors)}")
    except subprocess.TimeoutExpired as late:
        raise PeerMissing(f"what was left took more than {PATIENCE:.0f} s") from late
    finally:
        second.kill()
        second.wait()
    return _counted(ledger, count, time.perf_counter() - killed, last)


def _restate(arena: Arena) -> Crash:
    """The server stays; the handler is killed, and another one listens where it did."""
    count, ledger = arena.size("workflows"), _ledger(arena)
    problems: list[BaseException] = []

    async def calls(ingress: str) -> None:
        found = await asyncio.gather(*(call(ingress, "/Ten/ten_steps", b"0") for _ in range(count)))
        if {int(one) for one in found} != {STEPS}:
            raise AssertionError("a wrong result")

    def client(ingress: str) -> None:
        try:
            asyncio.run(calls(ingress))
        except BaseException as problem:  # noqa: BLE001 - told in the other thread
            problems.append(problem)

    idle.clear()  # connections of an earlier round
    with restate(arena.folder, ledger) as (server, handler):
        thread = threading.Thread(target=client, args=[server.ingress], daemon=True)
        thread.start()
        _wait_until_half(ledger, count, lambda: not thread.is_alive())
        if problems or not thread.is_alive():
            raise PeerMissing(f"it ended before it could be killed: {problems}")
        handler.kill()
        last = _last(ledger)
        killed = time.perf_counter()
        other = start_handler(arena.folder, server.handler_port, ledger)
        try:
            thread.join(PATIENCE)
            seconds = time.perf_counter() - killed
        finally:
            other.kill()
        if thread.is_alive() or problems:
            raise PeerMissing(f"not all came to their end: {problems}")
    return _counted(ledger, count, seconds, last)


def _last_line(errors: Path) -> str:
    said = errors.read_text(errors="replace").strip().splitlines()
    return said[-1] if said else "it said nothing"


def _ledger(arena: Arena) -> Path:
    ledger = arena.folder / f"{time.time_ns():x}.steps"
    ledger.touch()
    return ledger


def _wait_until_half(ledger: Path, count: int, is_over: Callable[[], bool]) -> None:
    """Until every workflow has begun a step, and half of all steps have begun."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    while len(lines := ledger.read_text().splitlines()) < count * STEPS // 2 or (
        len({line.partition(" ")[0] for line in lines}) < count
    ):
        if is_over() or time.monotonic() > deadline:
            return  # the one who waits finds out why
        pause.wait(LOOK)


def _last(ledger: Path) -> dict[str, str]:
    """The last step that each workflow had begun."""
    return dict(line.split() for line in ledger.read_text(encoding="utf-8").splitlines())


def _counted(ledger: Path, count: int, seconds: float, last: dict[str, str]) -> Crash:
    begun = Counter(ledger.read_text(encoding="utf-8").splitlines())
    if len(begun) != count * STEPS:
        raise PeerMissing(f"{len(begun)} of {count * STEPS} steps were done")
    again = {line: times - 1 for line, times in begun.items() if times > 1}
    idle = sum(
        times for line, times in again.items() if last.get(line.split()[0]) != line.split()[1]
    )
    return Crash(seconds, len(last), sum(again.values()), idle)
