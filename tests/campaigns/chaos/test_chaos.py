"""Workers under chaos, on each backend. The same, larger: `./dev chaos`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.campaigns.chaos.ledgers import Fault
from tests.campaigns.chaos.network import Network
from tests.campaigns.chaos.places import PLACES, Place
from tests.campaigns.chaos.report import Tally
from tests.campaigns.chaos.round import Left, Round
from tests.campaigns.chaos.verdict import judge
from tests.campaigns.chaos.workers import Clockwork
from tests.campaigns.chaos.workflows import GRIPPING, LEASE, once
from tests.campaigns.engine_kills.ledgers import Effect

RUNS = 40
WORKERS = 4
CLOCKS = ("sqlite", "postgres")
"""Where clocks are set, which costs: one place that has a clock of its own, and one that has not."""


def play(place: type[Place]) -> Left:
    """A round in which everything happens once."""

    async def live(folder: Path) -> Left:
        clocks = place.NAME in CLOCKS
        one = Round(place, folder, seed=1, workers=WORKERS, clocks=clocks)
        return await one.play(runs=RUNS, faults=len(place.FAULTS))

    # Not in pytest's folder: that is for one user alone, and PostgreSQL refuses to be root.
    with tempfile.TemporaryDirectory(prefix="outlast-chaos-") as name:
        Path(name).chmod(0o755)
        return asyncio.run(live(Path(name)))


@pytest.fixture(scope="module")
def left() -> Left:
    """What is left of a round on a file."""
    return play(PLACES["sqlite"])


@pytest.mark.proves("I3", "I5", "I7", "I8", "I9", "I10", "I16", "I18", "I24", "I29", "I30")
def test_workers_on_a_file_keep_their_promises(left: Left) -> None:
    """Killed, stopped, drained, gripped, with clocks that are set and a file that is locked."""
    assert judge(left) == []
    _everything_happened(left, PLACES["sqlite"])


@pytest.mark.server
@pytest.mark.proves("I3", "I5", "I6", "I8", "I12", "I15", "I16", "I24", "I29", "I30")
@pytest.mark.parametrize("name", [name for name in PLACES if name != "sqlite"])
def test_workers_on_a_server_keep_their_promises(name: str) -> None:
    """Besides, the server is ended without mercy, connections are cut, and a worker is parted."""
    found = play(PLACES[name])
    assert judge(found) == []
    _everything_happened(found, PLACES[name])


def _everything_happened(left: Left, place: type[Place]) -> None:
    tally = Tally(LEASE)
    tally.count(left, [])
    assert tally.counts["runs"] >= RUNS
    clocks = place.NAME in CLOCKS and Clockwork.library() is not None
    expected = set(place.FAULTS) - (set() if clocks else {"clock"})
    if Network.missing() is not None:
        print(f"no worker has a network of its own: {Network.missing()}")
        expected -= {"wire"}
    assert {fault.what for fault in left.faults} >= expected


# -- the verdict itself: evidence that was tampered with is found out -----------------------------


def _first(left: Left, kind: str, what: str = "begun") -> Effect:
    return next(
        one
        for one in left.evidence.effects
        if one.run_id.startswith(f"{kind}-") and one.what == what
    )


def _with(left: Left, *effects: Effect) -> Left:
    evidence = left.evidence._replace(effects=[*left.evidence.effects, *effects])
    return replace(left, evidence=evidence)


def _again(one: Effect, **changes: object) -> Effect:
    return replace(one, life=99, at=one.at + 1, **changes)


def _begin_beside(left: Left) -> Left:
    return replace(_with(left, _again(_first(left, "chain"))), faults=[])


def _repeat_what_must_not_be(left: Left) -> Left:
    return _with(left, _again(_first(left, "careful"), attempt=2))


def _answer_wrongly(left: Left) -> Left:
    told = [
        replace(line, value=-1) if line.what == "answered" else line for line in left.evidence.told
    ]
    return replace(left, evidence=left.evidence._replace(told=told))


def _accept_under_an_old_token(left: Left) -> Left:
    claims = [op for op in left.ops if op.name == "claim_runs"]
    commits = {op.value.run_id for op in left.ops if op.name == "commit"}  # type: ignore[union-attr]
    claim = next(op for op in claims if op.result.run_id in commits)  # type: ignore[attr-defined]
    newer = replace(claim.result, token=10**18, owner="another")  # type: ignore[type-var]
    early = replace(claim, begun=claim.begun, ended=claim.ended, result=newer, client="99")
    return replace(left, ops=[early, *left.ops])


def _lose_a_commit(left: Left) -> Left:
    runs = dict(left.evidence.final.runs)
    dumped = runs["chain-0"]
    runs["chain-0"] = replace(dumped, events=dumped.events[:-1])
    final = replace(left.evidence.final, runs=runs)
    return replace(left, evidence=left.evidence._replace(final=final))


def _stop_badly(left: Left) -> Left:
    return replace(left, problems=["I30: worker 3 was told to stop and exited with 1"])


TAMPERED: list[tuple[Callable[[Left], Left], str]] = [
    (_begin_beside, "was begun by worker 99 while"),
    (_repeat_what_must_not_be, f"'{once.definition.name}' is to run at most once"),
    (_answer_wrongly, "was answered -1"),
    (_accept_under_an_old_token, "was accepted after"),
    (_lose_a_commit, "I3 chain-0"),
    (_stop_badly, "exited with 1"),
]


def test_the_verdict_notices(left: Left) -> None:
    """Each promise, broken on purpose in the evidence, is found and named. One test for all: each
    process of pytest that has one of them would play the round again."""
    for tamper, says in TAMPERED:
        found = judge(tamper(left))
        assert any(says in problem for problem in found), (tamper.__name__, found)


def test_a_fault_excuses_the_one_it_was_done_to(left: Left) -> None:
    """One that was stopped cannot know at once that somebody else goes on."""
    one = _first(left, "chain")
    stopped = Fault("stop", one.life, one.at - 1, one.at + 1)
    found = judge(replace(_with(left, _again(one)), faults=[stopped]))
    assert not any("was begun by worker 99 while" in problem for problem in found)


def test_who_is_killed_in_a_grip_could_not_know(left: Left) -> None:
    """It stood still until its death, and has not lived to write that down."""
    one = _first(left, "chain")
    grip = replace(one, key=GRIPPING, run_id="grips-0")
    killed = Fault("killed", one.life, one.at + 9, one.at + 9)
    lines = [line for line in left.evidence.effects if line.life != one.life or line is one]
    alone = replace(left, evidence=left.evidence._replace(effects=lines), faults=[killed])
    for effects, expected in (([_again(one)], True), ([grip, _again(one)], False)):
        found = judge(_with(alone, *effects))
        assert any("was begun by worker 99 while" in line for line in found) is expected
