"""An engine that is killed again and again. The same, larger: `./dev prove kill_engine`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import Raw
from msgspec.structs import replace

from outlast.model import Run, Status
from outlast.model.event import to_event
from outlast.model.payloads import StepFailedEvent
from outlast.testkit.dump import RunDump
from tests.campaigns.engine_kills.killing import Evidence, kill_again_and_again
from tests.campaigns.engine_kills.ledgers import Effect
from tests.campaigns.engine_kills.verdict import attempts, executions, judge
from tests.campaigns.engine_kills.workflows import kind_of


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """What is left of an engine that was killed six times."""
    folder = tmp_path_factory.mktemp("kills")
    return kill_again_and_again(folder, kills=6, seed=1, longest=1.2)


@pytest.mark.proves("I3", "I7", "I8", "I9", "I10", "I16", "I18", "I20", "R-22", "S-16")
def test_an_engine_that_is_killed_keeps_its_promises(evidence: Evidence) -> None:
    """All that was started has ended as it should, and no recorded step ran again."""
    assert judge(evidence) == []
    assert len(evidence.final.runs) > 20
    assert any(one.ended is None for one in executions(evidence.effects)), "nothing was cut off"


# -- the verdict itself: evidence that was tampered with is found out -----------------------------


def _uninterrupted(evidence: Evidence, kind: str) -> RunDump:
    """The newest run of a kind: the last life started it, so no kill has interrupted a step of it. An
    older one may have been given up for good reasons, and then it shows nothing of what was changed."""
    mine = [id for id in evidence.final.runs if id.startswith(f"{kind}-") and "~" not in id]
    return evidence.final.runs[max(mine, key=lambda id: kind_of(id, evidence.kinds)[1])]


def _with(evidence: Evidence, dumped: RunDump) -> Evidence:
    runs = {**evidence.final.runs, dumped.run.id: dumped}
    return evidence._replace(final=replace(evidence.final, runs=runs))


def _change(evidence: Evidence, kind: str, change: Callable[[Run], Run]) -> Evidence:
    dumped = _uninterrupted(evidence, kind)
    return _with(evidence, replace(dumped, run=change(dumped.run)))


def _lose_a_run(evidence: Evidence) -> Evidence:
    runs = dict(evidence.final.runs)
    del runs[_uninterrupted(evidence, "chain").run.id]
    return evidence._replace(final=replace(evidence.final, runs=runs))


def _leave_one_open(evidence: Evidence) -> Evidence:
    return _change(evidence, "naps", lambda run: replace(run, status=Status.WAITING))


def _give_another_result(evidence: Evidence) -> Evidence:
    return _change(evidence, "loops", lambda run: replace(run, result=Raw(b"-1")))


def _give_up_too_early(evidence: Evidence) -> Evidence:
    text = "step 'add' failed: the process died while it ran (3 times)"
    return _change(
        evidence, "fans", lambda run: replace(run, status=Status.FAILED, error=text, result=None)
    )


def _run_a_recorded_step_again(evidence: Evidence) -> Evidence:
    chain = _uninterrupted(evidence, "chain")
    first = next(one for one in evidence.effects if one.run_id == chain.run.id)
    last = evidence.effects[-1]
    again = Effect("begun", last.life + 1, last.at + 10**9, *_names(first))
    return evidence._replace(effects=[*evidence.effects, again])


def _run_before_the_start_is_durable(evidence: Evidence) -> Evidence:
    chain = _uninterrupted(evidence, "chain")
    first = next(one for one in evidence.effects if one.run_id == chain.run.id)
    early = Effect("begun", 0, 0, first.run_id, first.uid, "never_started", 1)
    return evidence._replace(effects=[early, *evidence.effects])


def _run_an_item_again(evidence: Evidence) -> Evidence:
    spread = _uninterrupted(evidence, "spread")
    item = next(one for one in evidence.effects if one.run_id == spread.run.id)
    again = Effect("begun", 99, evidence.effects[-1].at + 10**9, *_names(item))
    return evidence._replace(effects=[*evidence.effects, again])


def _lose_a_signal(evidence: Evidence) -> Evidence:
    dumped = _uninterrupted(evidence, "listens")
    heard = next(event for event in dumped.events if event.type == "signal.received")
    kept = [event for event in dumped.events if event is not heard]
    return _with(evidence, replace(dumped, events=kept))


def _undo_in_another_order(evidence: Evidence) -> Evidence:
    run_id = _uninterrupted(evidence, "undoes").run.id
    swap = {"un-car": "un-hotel", "un-hotel": "un-car"}
    effects = [
        replace(one, label=swap.get(one.label, one.label)) if one.run_id == run_id else one
        for one in evidence.effects
    ]
    return evidence._replace(effects=effects)


def _forget_to_undo(evidence: Evidence) -> Evidence:
    run_id = _uninterrupted(evidence, "undoes").run.id
    effects = [one for one in evidence.effects if one.run_id != run_id or one.label != "un-hotel"]
    return evidence._replace(effects=effects)


def _try_once_too_often(evidence: Evidence) -> Evidence:
    dumped = _uninterrupted(evidence, "flaky")
    start = next(event for event in dumped.events if event.type == "step.started")
    return _with(evidence, replace(dumped, events=[*dumped.events, start]))


def _end_five_attempts(evidence: Evidence, *, stopped: bool = False) -> Evidence:
    dumped = _uninterrupted(evidence, "flaky")
    ends = [
        to_event(
            StepFailedEvent(error="no", attempt=number, will_retry=True, stopped=stopped),
            run_id=dumped.run.id,
            step_name="odd",
        )
        for number in range(1, 6)
    ]
    return _with(evidence, replace(dumped, events=[*dumped.events, *ends]))


def _damage_the_file(evidence: Evidence) -> Evidence:
    return evidence._replace(integrity=["row 7 missing from index"])


def _names(effect: Effect) -> tuple[str, str, str, int]:
    return effect.run_id, effect.uid, effect.key, effect.attempt


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (_lose_a_run, "its start was acknowledged, and it is not there"),
        (_leave_one_open, "is waiting"),
        (_give_another_result, "is completed with -1"),
        (_give_up_too_early, "no step was begun so often"),
        (_run_a_recorded_step_again, "ran again in life"),
        (_run_before_the_start_is_durable, "its start is not on record"),
        (_run_an_item_again, "ran again in life 99 after its record"),
        (_lose_a_signal, "heard [1, 2, 3, 4]"),
        (_undo_in_another_order, "and cancellations of ['hotel', 'flight', 'car']"),
        (_forget_to_undo, "and cancellations of ['car', 'flight']"),
        (_try_once_too_often, "is one too many"),
        (_end_five_attempts, "'odd' failed 5 times"),
        (_damage_the_file, "integrity_check: row 7"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_the_verdict_notices(
    evidence: Evidence, tamper: Callable[[Evidence], Evidence], says: str
) -> None:
    """Each promise, broken on purpose in the evidence, is found and named."""
    assert any(says in problem for problem in judge(tamper(evidence))), judge(tamper(evidence))


def test_the_verdict_does_not_count_attempts_that_were_stopped(evidence: Evidence) -> None:
    """A worker that leaves a run, or has to, ends an attempt as often as it likes."""
    assert list(attempts(_end_five_attempts(evidence, stopped=True))) == []
