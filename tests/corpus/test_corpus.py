"""The corpus, undisturbed: each tiny workflow ends as it should, with the history it should have."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.model import Event
from outlast.model.event import EventType, payload_of
from outlast.model.payloads import MapProgress
from outlast.testing.history_replay import replay
from tests.corpus.case import RUN, Case, lines, told
from tests.corpus.every import BY_ID, CASES, MakeStore, in_files, in_memory
from tests.corpus.stage import Ending, play


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """How to make a new store."""
    return in_memory if request.param == "memory" else in_files(tmp_path)


@pytest.mark.proves("I7", "I8", "I9", "I14", "I15", "I16", "I18", "I19", "I20", "I21", "I24")
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_case(case: Case, make_store: MakeStore) -> None:
    """A workflow ends with its outcome and with the history that stands beside it, its children
    with theirs; no step runs more often than recorded, and no promise is broken."""
    ending = await play(case, make_store)
    assert ending.outcome == case.outcome
    assert told(ending.histories[RUN]) == lines(case.history)
    others = {id: told(history) for id, history in ending.histories.items() if id != RUN}
    assert others == {id: lines(history) for id, history in case.runs.items()}
    assert ending.violations == []
    assert len(ending.executions) == (done(ending) if case.bodies is None else case.bodies)
    if case.notes is not None:
        assert ending.notes == case.notes


@pytest.mark.proves("I13", "I14")
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_case_replays_from_zero(case: Case) -> None:
    """The same code on the history that it wrote asks for the same and comes to the same end; and
    so do its children. Only a run that was terminated knows nothing of its end."""
    ending = await play(case, in_memory)
    by_name = {workflow.name: workflow for workflow in case.workflows}
    for id, history in ending.histories.items():
        run = ending.runs[id]
        replayed = replay(by_name[run.workflow], history, uid=run.uid)
        assert replayed.asks == []
        assert replayed.ended == payload_of(history[-1]) or case.id == "is_terminated"


@pytest.mark.proves("K-02")
def test_there_are_cases_for_everything() -> None:
    """At least forty-five behaviours, each with a name of its own, and twins for plain code."""
    assert len(BY_ID) == len(CASES) >= 45
    assert sum(id.endswith("_sync") for id in BY_ID) >= 10


EVENT_TYPES = [
    pytest.param(EventType.WORKFLOW_STARTED, marks=pytest.mark.proves("K-20")),
    pytest.param(EventType.WORKFLOW_COMPLETED, marks=pytest.mark.proves("K-21")),
    pytest.param(EventType.WORKFLOW_FAILED, marks=pytest.mark.proves("K-22")),
    pytest.param(EventType.WORKFLOW_CANCELLED, marks=pytest.mark.proves("K-23")),
    pytest.param(EventType.STEP_STARTED, marks=pytest.mark.proves("K-24")),
    pytest.param(EventType.STEP_COMPLETED, marks=pytest.mark.proves("K-25")),
    pytest.param(EventType.STEP_FAILED, marks=pytest.mark.proves("K-26")),
    pytest.param(EventType.BRANCH_EVALUATED, marks=pytest.mark.proves("K-27")),
    pytest.param(EventType.SIGNAL_WAITING, marks=pytest.mark.proves("K-28")),
    pytest.param(EventType.SIGNAL_RECEIVED, marks=pytest.mark.proves("K-29")),
    pytest.param(EventType.SIGNAL_TIMEOUT, marks=pytest.mark.proves("K-30")),
    pytest.param(EventType.CHILD_SPAWNED, marks=pytest.mark.proves("K-31")),
    pytest.param(EventType.CHILD_COMPLETED, marks=pytest.mark.proves("K-32")),
    pytest.param(EventType.CHILD_FAILED, marks=pytest.mark.proves("K-33")),
    pytest.param(EventType.MAP_STARTED, marks=pytest.mark.proves("K-34")),
    pytest.param(EventType.MAP_COMPLETED, marks=pytest.mark.proves("K-35")),
    pytest.param(EventType.MAP_FAILED, marks=pytest.mark.proves("K-36")),
    pytest.param(EventType.COMPENSATION_STARTED, marks=pytest.mark.proves("K-37")),
    pytest.param(EventType.COMPENSATION_COMPLETED, marks=pytest.mark.proves("K-38")),
    pytest.param(EventType.COMPENSATION_FAILED, marks=pytest.mark.proves("K-39")),
]


@pytest.mark.parametrize("type", EVENT_TYPES, ids=str)
def test_the_type_appears_in_a_real_history(type: str) -> None:
    """Each event type of the seeds that an engine emits is in the history of some case."""
    assert any(line.split()[0] == type for case in CASES for line in lines(case.history))


@pytest.mark.proves("I19", "K-34", "K-35")
async def test_a_large_map_writes_few_events() -> None:
    """Two thousand items are a few dozen events, not thousands."""
    ending = await play(BY_ID["maps_thousands"], in_memory)
    assert len(ending.histories[RUN]) < 60


@pytest.mark.proves("I14")
async def test_many_steps_cost_one_commit_each() -> None:
    """n steps one after the other are n + 1 commits: a result travels with the next intent."""
    ending = await play(BY_ID["one_after_the_other"], in_memory)
    assert sum(site.startswith("commit") for site in ending.store_calls) == 3 + 1


def done(ending: Ending) -> int:
    """How many steps and items of maps have an outcome."""
    return sum(_outcomes(event) for history in ending.histories.values() for event in history)


def _outcomes(event: Event) -> int:
    if event.type == EventType.STEP_COMPLETED:
        return 1
    payload = payload_of(event) if event.type == EventType.MAP_PROGRESS else None
    return len(payload.completed) + len(payload.failed) if isinstance(payload, MapProgress) else 0
