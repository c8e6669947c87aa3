"""The model notices what it is there for: evidence that was tampered with is not accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.campaigns.programs.judging import judge
from tests.campaigns.programs.model import LEAKS_CANCELS, violations
from tests.campaigns.programs.program import (
    Act,
    Ask,
    Case,
    Child,
    Gather,
    Halt,
    Map,
    Raise,
    Signal,
    Sleep,
    Step,
    Timeout,
    Try,
)
from tests.campaigns.programs.runner import Evidence

FAILS = Case(
    body=(Step(undo="ok"), Gather(((Step(undo="ok"),), (Step(),))), Map(undo="ok"), Raise()),
)
WRITES = Case(body=(Step(transactional=True),))
FAILS_TO_WRITE = Case(body=(Step(transactional=True, raises=1),))
COMPLETES = Case(
    body=(Signal(), Step(raises=1, attempts=2), Try((Raise(),)), Child((Step(), Sleep(4)))),
    handler=(Step(),),
    acts=(Act("update", commits=1, dedup="k"), Act("update", dedup="k"), Act("signal", commits=1)),
)
CHILD_UNDOES = Case(
    body=(
        Gather(
            (
                (Child((Sleep(1), Raise())),),
                (Child((Map(items=3, seconds=2, concurrency=3, undo="fails"),)),),
            ),
            group=True,
        ),
    ),
    acts=(Act("retry", seconds=2),),
)
"""The second child is cancelled, and undoes for longer than the caller of `retry` waits."""


ASKS = Case(body=(Gather(((Halt(),), (Ask(4),))), Ask()))


def evidence_of(case: Case) -> Evidence:
    """What is known of a case that kept its promises."""
    found, evidence = judge(case)
    assert found == []
    assert evidence is not None
    return evidence


def verdict(evidence: Evidence) -> set[str]:
    """The promises that were not kept."""
    found = violations(evidence.case, evidence.ledger, evidence.runs, evidence.stuck)
    return {problem.partition(":")[0] for problem in found}


def test_a_program_keeps_its_promises() -> None:
    """Without faults and without tampering there is nothing to complain about."""
    assert {run.status for run in evidence_of(FAILS).runs.values()} == {"failed"}
    assert {run.status for run in evidence_of(COMPLETES).runs.values()} == {"completed"}


def test_a_retry_may_be_told_that_a_cancelled_child_still_undoes() -> None:
    """`Busy` after the caller's patience is a plain answer then, and only then."""
    (retry,) = evidence_of(CHILD_UNDOES).ledger.told
    assert (retry.error or "").startswith("Busy: run 'r' is not retried: its child")


@pytest.mark.skipif(not LEAKS_CANCELS, reason="asyncio counts its cancellations rightly")
def test_a_timeout_around_a_group_that_failed_may_cancel() -> None:
    """asyncio before Python 3.13 does so by itself; without the group it is noticed."""
    branches = ((Sleep(0), Raise()),)

    def timed(*, group: bool) -> Case:
        return Case((Timeout(1, (Try((Gather(branches, group=group),)), Sleep(4))),))

    evidence = evidence_of(timed(group=True))
    assert evidence.runs["r"].status == "cancelled"
    assert verdict(replace(evidence, case=timed(group=False))) == {"runs_end_as_their_code_did"}


def _undoes_in_order(evidence: Evidence) -> None:
    undone = [body for body in evidence.ledger.bodies if body.undo]
    undone[0].path, undone[1].path = undone[1].path, undone[0].path


def _forgets_to_undo(evidence: Evidence) -> None:
    evidence.ledger.bodies.remove([body for body in evidence.ledger.bodies if body.undo][-1])


def _begins_after_undoing(evidence: Evidence) -> None:
    done = [body for body in evidence.ledger.bodies if not body.undo]
    evidence.ledger.bodies.append(replace(done[0], tick=evidence.ledger.tick()))


def _runs_twice(evidence: Evidence) -> None:
    body = evidence.ledger.bodies[0]
    evidence.ledger.bodies.append(replace(body, tick=evidence.ledger.tick()))


def _gives_another_result(evidence: Evidence) -> None:
    seen = evidence.ledger.seen
    at = next(i for i, one in enumerate(seen) if one.value == "r@0.1")
    seen[at] = replace(seen[at], value="r@0.0")


def _ends_otherwise(evidence: Evidence) -> None:
    run = evidence.runs["r"]
    evidence.runs["r"] = replace(run, result=["other"])


def _has_a_gap(evidence: Evidence) -> None:
    run = evidence.runs["r"]
    evidence.runs["r"] = replace(run, sequences=(1, *run.sequences[2:]))


def _is_cancelled_by_itself(evidence: Evidence) -> None:
    evidence.runs["r"] = replace(evidence.runs["r"], status="cancelled")


def _loses_a_child(evidence: Evidence) -> None:
    uid = evidence.ledger.children[0].uid
    kept = [one for one in evidence.ledger.recorded if one.uid != uid]
    evidence.ledger.recorded[:] = kept


def _takes_a_signal_that_was_not_sent(evidence: Evidence) -> None:
    seen = evidence.ledger.seen
    seen[:] = [replace(one, value=999) if one.path == "r@0.0" else one for one in seen]


def _answers_twice(evidence: Evidence) -> None:
    asked = [told for told in evidence.ledger.told if told.do == "update"]
    asked[-1].answer = 999


def _refuses_strangely(evidence: Evidence) -> None:
    evidence.ledger.told[0].error = "Undecodable: no"


def _is_busy_though_the_child_has_ended(evidence: Evidence) -> None:
    (retry,) = evidence.ledger.told
    recorded = evidence.ledger.recorded
    recorded[:] = [
        replace(one, tick=(retry.done or 0) - 1) if one.type == "workflow.cancelled" else one
        for one in recorded
    ]


def _is_busy_before_its_patience_ends(evidence: Evidence) -> None:
    evidence.ledger.told[0].time += 30


def _is_busy_with_a_child_that_was_not_cancelled(evidence: Evidence) -> None:
    recorded = evidence.ledger.recorded
    recorded[:] = [one for one in recorded if one.type != "cancel.requested"]


def _is_busy_for_something_else(evidence: Evidence) -> None:
    evidence.ledger.told[0].do = "pause"


def _writes_twice(evidence: Evidence) -> None:
    evidence.ledger.effects *= 2


def _writes_nothing(evidence: Evidence) -> None:
    evidence.ledger.effects.clear()


def _writes_though_it_failed(evidence: Evidence) -> None:
    body = evidence.ledger.bodies[0]
    evidence.ledger.effects.append((body.run_id, body.uid, body.path))


def _takes_an_answer_to_another_question(evidence: Evidence) -> None:
    seen = evidence.ledger.seen
    answers = {one.path: one.value for one in seen if one.kind == "value"}
    (first, one), (second, other) = [
        (told.answer, told.value) for told in evidence.ledger.told if told.value in answers.values()
    ][:2]
    swapped = {first: other, second: one}
    seen[:] = [replace(it, value=swapped.get(it.path, it.value)) for it in seen]


def _accepts_a_second_answer(evidence: Evidence) -> None:
    refused = [told for told in evidence.ledger.told if "AlreadyAnswered" in (told.error or "")]
    refused[0].error = None


TAMPERED: list[tuple[Case, Callable[[Evidence], None], str]] = [
    (FAILS, _undoes_in_order, "what_was_done_is_undone"),
    (FAILS, _forgets_to_undo, "what_was_done_is_undone"),
    (FAILS, _begins_after_undoing, "what_was_done_is_undone"),
    (FAILS, _runs_twice, "a_recorded_step_never_runs_again"),
    (COMPLETES, _gives_another_result, "steps_have_their_outcome"),
    (COMPLETES, _ends_otherwise, "runs_end_as_their_code_did"),
    (COMPLETES, _has_a_gap, "histories_have_no_gap"),
    (COMPLETES, _is_cancelled_by_itself, "runs_end_as_their_code_did"),
    (COMPLETES, _loses_a_child, "children_have_an_owner"),
    (COMPLETES, _takes_a_signal_that_was_not_sent, "signals_are_taken_once_and_in_order"),
    (WRITES, _writes_twice, "an_effect_and_its_record_are_one"),
    (WRITES, _writes_nothing, "an_effect_and_its_record_are_one"),
    (FAILS_TO_WRITE, _writes_though_it_failed, "an_effect_and_its_record_are_one"),
    (COMPLETES, _answers_twice, "updates_are_answered"),
    (ASKS, _takes_an_answer_to_another_question, "the_first_answer_counts"),
    (ASKS, _accepts_a_second_answer, "the_first_answer_counts"),
    (COMPLETES, _refuses_strangely, "callers_get_plain_answers"),
    (CHILD_UNDOES, _is_busy_though_the_child_has_ended, "callers_get_plain_answers"),
    (CHILD_UNDOES, _is_busy_before_its_patience_ends, "callers_get_plain_answers"),
    (CHILD_UNDOES, _is_busy_with_a_child_that_was_not_cancelled, "callers_get_plain_answers"),
    (CHILD_UNDOES, _is_busy_for_something_else, "callers_get_plain_answers"),
]


@pytest.mark.parametrize(
    ("case", "tamper", "rule"), TAMPERED, ids=lambda one: getattr(one, "__name__", "")
)
def test_what_was_tampered_with_is_noticed(
    case: Case, tamper: Callable[[Evidence], None], rule: str
) -> None:
    """Each promise has evidence that breaks it, and the model says which one it is."""
    evidence = evidence_of(case)
    tamper(evidence)
    assert rule in verdict(evidence)
