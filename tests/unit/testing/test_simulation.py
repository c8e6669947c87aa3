"""The simulation: the corpus in bad weather, exact repetition, and that it finds what is broken."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast import testing
from outlast.errors import Fenced
from outlast.model import Commit, Outcome
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.testing.crash_sweep import RESIDENCIES
from outlast.testkit.fault_schedule import CALM
from outlast.testkit.simulation import OutsideWorld, SimulatedRun, SimulationResult, simulate
from tests.campaigns.prove import simulation as campaign
from tests.unit.testing.storm import case_of, storm

ROOT = Path(__file__).parents[3]
CHUNK, CHUNKS = 25, 12


@outlast.step
async def long_work(number: int) -> int:
    await testing.sleep(10)
    return number + 1


@outlast.step
def quick_work(number: int) -> int:
    return number + 1


@outlast.workflow
async def helper(number: int) -> int:
    return await quick_work(await long_work(number))


@outlast.workflow
async def busy(number: int) -> int:
    for _ in range(3):
        number = await long_work(number)
    await outlast.sleep(20)
    number += await helper(number)
    number += await outlast.wait_for_signal("more", int)
    return number + sum(await asyncio.gather(*(long_work(n) for n in range(3))))


async def send_more(outside: OutsideWorld) -> None:
    await outside.clock.sleep(30)
    await outside.client.get("run").signal("more", 100)


SUBJECT = SimulatedRun(busy, (1,), workflows=(helper,), world=send_more)


@pytest.mark.proves("I1", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I11", "I12", "I13", "I14")
@pytest.mark.proves("I15", "I16", "I18", "I19", "I20", "I21", "I24")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_corpus_comes_to_its_end_in_any_weather(chunk: int) -> None:
    """With crashes, zombies, two engines at once and calls that get lost or doubled, each tiny
    workflow ends as it does in calm weather, and history, ledger and log agree."""
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        storm(case_of(seed), seed).check()


@pytest.mark.parametrize("residency", ["snapshots", "evictions", "both"])
@pytest.mark.parametrize("chunk", range(4))
def test_the_corpus_comes_to_its_end_in_any_residency(chunk: int, residency: str) -> None:
    """The same with a snapshot, an eviction, or both at every commit."""
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        storm(case_of(seed), seed, residency=RESIDENCIES[residency]).check()


@pytest.mark.proves("I7", "I8", "I12", "I24")
def test_a_workflow_of_ones_own_in_any_weather() -> None:
    """A run is compared with itself in calm weather; over a few seeds everything happens."""
    weather = [simulate(seed, SUBJECT) for seed in range(25)]
    for simulated in weather:
        simulated.check()
    assert sum(one.crashes for one in weather) > 10
    assert sum(one.pauses for one in weather) > 5
    assert sum(one.faults for one in weather) > 50
    starts = [sum(e.type == "step.started" for e in one.histories["run"]) for one in weather]
    assert max(starts) > min(starts) == 6


def test_a_seed_repeats_to_the_letter() -> None:
    """Two simulations of one seed have the same trace, two seeds do not."""
    traces = [simulate(seed, SUBJECT).trace for seed in (7, 7, 8)]
    assert traces[0] == traces[1] != traces[2]


def test_a_seed_repeats_in_another_process() -> None:
    """A trace depends on nothing but the seed: neither on hashes nor on addresses or times."""
    code = "from tests.unit.testing.test_simulation import *; print(digests())"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert outputs == [digests(), digests()]


def digests() -> str:
    """What some seeds come to."""
    own = [simulate(seed, SUBJECT).digest for seed in range(3)]
    return " ".join(own + [storm(case_of(seed), seed).digest for seed in range(0, 100, 9)])


# -- what is broken is found ----------------------------------------------------------------------


class Unfenced(MemoryStore):
    """Lets everybody write: a zombie too."""

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        found = [(commit, await self.find_one(commit.run_id)) for commit in commits]
        forged = [
            commit
            if run is None or commit.create is not None
            else msgspec.structs.replace(commit, token=run.token, expected=None)
            for commit, run in found
        ]
        return await super().commit(forged, atomic=atomic, timeout=timeout)


class Forgetful(MemoryStore):
    """Acknowledges every seventh commit and keeps nothing of it."""

    _commits = 0

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        self._commits += 1
        if self._commits % 7:
            return await super().commit(commits, atomic=atomic, timeout=timeout)
        kept = {id: life.run for id, life in self._tables.lives.items()}
        events = {id: list(life.events) for id, life in self._tables.lives.items()}
        outcomes = await super().commit(commits, atomic=atomic, timeout=timeout)
        for id, run in kept.items():
            self._tables.lives[id].run = run
            self._tables.lives[id].events[:] = events[id]
        return outcomes


class Deaf(MemoryStore):
    """Refuses whatever a second owner writes: nobody can take over."""

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        late = [commit for commit in commits if (commit.token or 0) > 3]
        if late:
            return [Fenced(one.run_id, token=one.token, current=99) for one in commits]
        return await super().commit(commits, atomic=atomic, timeout=timeout)


@pytest.mark.parametrize(
    ("store", "promise"),
    [
        (lambda clock: Unfenced(clock=clock), "I5"),
        (lambda clock: Forgetful(clock=clock), "I3"),
        (lambda clock: Deaf(clock=clock), "I24"),
    ],
    ids=["unfenced", "forgetful", "deaf"],
)
def test_a_broken_store_is_found(
    store: Callable[[Clock], Store], promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that breaks a promise is found in a few seeds, and the promise is named."""
    monkeypatch.setattr("outlast.testkit.simulation.MAX_JUMPS", 2_000)
    expected = simulate(0, SUBJECT, rates=CALM).ending
    told: list[str] = []
    for seed in range(60):
        told += found(lambda: simulate(seed, SUBJECT, store=store, expected=expected))  # noqa: B023
        if any(line.startswith(promise) for line in told):
            return
    raise AssertionError(f"{promise} was not missed: {told[:5]}")


def found(play: Callable[[], SimulationResult]) -> list[str]:
    return play().violations


def test_a_run_that_waits_for_ever_is_told() -> None:
    """If nothing more will happen and a run has not ended, it is named, with what it waits for."""
    simulated = simulate(0, SimulatedRun(busy, (1,), workflows=(helper,)), rates=CALM)
    assert simulated.violations == ["I24: these runs do not advance: ['run is waiting, signal']"]


def test_the_campaign_can_be_interrupted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is done is kept and not done again; the figures count all of it."""
    monkeypatch.setattr(campaign, "STATE", tmp_path / "state" / "simulation.json")
    caplog.set_level(logging.CRITICAL, "outlast")  # which the campaign does, and nobody undoes
    assert campaign.main(["--seeds", "3", "--start", "5"]) == 0
    assert "seeds 5 to 7: all well" in capsys.readouterr().out
    figures = tmp_path / "figures.json"
    assert campaign.main(["--seeds", "3", "--start", "5", "--json", str(figures)]) == 0
    assert "seeds 5 to 7" not in capsys.readouterr().out
    assert msgspec.json.decode(figures.read_bytes())["simulation"]["seeds"] == 3
