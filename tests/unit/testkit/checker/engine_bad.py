"""What an engine may not write, told by hand: for each invariant some histories that break it, with
what has to be said of each."""

from __future__ import annotations

from outlast.model import Item, Status
from outlast.model.payloads import (
    ChildCompleted,
    ChildFailedEvent,
    CompensationCompleted,
    CompensationFailed,
    StepLost,
)
from outlast.testkit.checker import Evidence
from tests.unit.testkit.checker.telling import (
    ALL_UNDONE,
    BROKEN,
    CHILD_IS_DONE,
    DID_A_AND_B,
    DONE,
    FIRED,
    GONE,
    LATE,
    NO_MORE,
    OVER,
    THE_CHILD,
    UNDID_A,
    UNDID_B,
    Log,
    at,
    child,
    collected,
    failed,
    left,
    lived,
    mapped,
    progress,
    received,
    started,
    timer,
    undo,
    waiting,
)

SIGNAL = Item(kind="signal", name="go", id="item 1", number=1)
CHILD_FAILED = ChildFailedEvent(child_run_id="r~c", error="full")

BAD: dict[str, tuple[Evidence, str]] = {
    "I5: no claim": (
        left(lived((started(), "a")), log=Log().commit((started(), "a"), token=None, sequence=2)),
        "does not say what it builds on",
    ),
    "I5: no sequence": (
        left(lived((started(), "a")), log=Log().commit((started(), "a"), expected=None, sequence=2)),
        "does not say what it builds on",
    ),
    "I8: an item runs again": (
        left(
            lived((mapped(1), "m"), (progress(1, _0=7), "m"), (collected(b"[7]"), "m"), OVER),
            log=Log()
            .commit((mapped(1), "m"), sequence=2)
            .body("m[0]")
            .commit((progress(1, _0=7), "m"), sequence=3)
            .body("m[0]"),
        ),
        "item 'm[0]' began again",
    ),
    "I9: an item that never ran": (
        left(
            lived((mapped(2), "m"), (progress(2, _0=7, _1=8), "m"), (collected(b"[7,8]"), "m"), OVER),
            log=Log().commit((mapped(2), "m"), sequence=2).body("m[0]"),
        ),
        "item 'm[1]' is completed and never ran",
    ),
    "I10: run, then recorded": (
        left(
            lived((started(), "a"), (DONE, "a"), OVER),
            log=Log().body("a").commit((started(), "a"), sequence=2),
        ),
        "began before its intent was durable",
    ),
    "I10: run, and never recorded": (
        left(lived(OVER), log=Log().body("a")),
        "its start is recorded nowhere",
    ),
    "I10: a second attempt that is not counted": (
        left(
            lived((started(), "a"), (DONE, "a"), OVER),
            log=Log().commit((started(), "a"), sequence=2).body("a", ends=False).body("a"),
        ),
        "attempt 1 of step 'a' ran twice",
    ),
    "I10: an item beyond what was announced": (
        left(
            lived((mapped(9), "m"), (progress(5, _0=7), "m")),
            log=Log()
            .commit((mapped(9), "m"), sequence=2)
            .body("m[0]")
            .body("m[4]")
            .commit((progress(5, _0=7), "m"), sequence=3),
        ),
        "attempt 1 of 'm[4]' began before its intent",
    ),
    "I10: the same number twice": (
        left(lived((started(), "a"), (started(), "a"), (DONE, "a"), OVER)),
        "attempt 1 of 'a' follows 1",
    ),
    "I10: for ever": (
        left(lived(*((started(n, alone=True), "a") for n in range(1, 5)), (DONE, "a"), OVER)),
        "was cut off 3 times and goes on",
    ),
    "I10: lost for ever": (
        left(
            lived(
                *((one, "a") for n in range(1, 15) for one in (started(n, alone=True), StepLost(attempt=n))),
                (DONE, "a"),
                OVER,
            )
        ),
        "was cut off 3 times and goes on",
    ),
    "I10: after its end": (
        left(lived((started(), "a"), (DONE, "a"), (started(2), "a"), OVER)),
        "is over and was started again",
    ),
    "I13: another status": (
        left(lived(OVER, status=Status.FAILED)),
        "it is failed, and its history says completed",
    ),
    "I13: another result": (left(lived(OVER, result=None)), "its record has None"),
    "I13: an end that history does not know": (
        left(lived((timer(1), "timer"), status=Status.CANCELLED, ended_at=at(0))),
        "its history says None",
    ),
    "I13: no start": (left(lived(OVER, begun=False)), "it was started 0 times"),
    "I13: another workflow": (left(lived(OVER, workflow="v")), "its history is of 'w'"),
    "I15: a timer is early": (
        left(lived((timer(60), "timer"), (FIRED, "timer", 59), OVER)),
        "'timer' came 0:00:01 too early",
    ),
    "I15: a timeout is early": (
        left(lived((waiting(timeout=60), "x"), (LATE, "x", 59), OVER)),
        "'x' came 0:00:01 too early",
    ),
    "I15: a retry is early": (
        left(lived((started(), "a"), (failed(again=60), "a"), (started(2), "a", 9), (DONE, "a", 9), OVER)),
        "'a' came 0:00:51 too early",
    ),
    "I15: twice": (
        left(lived((timer(6), "timer"), (FIRED, "timer", 6), (FIRED, "timer", 6), OVER)),
        "no operation waits for 'timer'",
    ),
    "I15: after it was given up": (
        left(lived((timer(6), "timer"), (NO_MORE, "timer"), (FIRED, "timer", 6), OVER)),
        "no operation waits for 'timer'",
    ),
    "I15: a timeout after the signal": (
        left(lived((waiting(timeout=6), "x"), (received(), "x"), (LATE, "x", 6), OVER)),
        "no operation waits for 'x'",
    ),
    "I16: taken and not recorded": (
        left(
            lived((waiting(), "x"), (timer(6), "timer"), runnable_at=at(6)),
            log=Log().send(1).commit((timer(6), "timer"), consumes=(1,), sequence=3),
        ),
        "takes [('go', b'1')] and records []",
    ),
    "I16: recorded and not taken": (
        left(
            lived((waiting(), "x"), (received(), "x"), OVER),
            log=Log().send(1).commit((received(), "x"), sequence=3),
        ),
        "takes [] and records [('go', b'1')]",
    ),
    "I16: another value": (
        left(
            lived((waiting(), "x"), (received(b"2"), "x"), OVER),
            log=Log().send(1).commit((received(b"2"), "x"), consumes=(1,), sequence=3),
        ),
        "takes [('go', b'1')] and records [('go', b'2')]",
    ),
    "I16: the last first": (
        left(
            lived((waiting(), "x"), (received(b"2"), "x"), (waiting(), "y"), (received(), "y"), OVER),
            log=Log()
            .send(1)
            .send(2, b"2")
            .commit((received(b"2"), "x"), (waiting(), "y"), consumes=(2,), sequence=3)
            .commit((received(), "y"), consumes=(1,), sequence=5),
        ),
        "signal 'go' 1 was taken after a later one",
    ),
    "I16: the last first, in one commit": (
        left(
            lived((waiting(), "x"), (received(b"2"), "x"), (waiting(), "y"), (received(), "y"), OVER),
            log=Log()
            .send(1)
            .send(2, b"2")
            .commit((received(b"2"), "x"), (waiting(), "y"), (received(), "y"), consumes=(1, 2), sequence=3),
        ),
        "another order",
    ),
    "I19: in the order in which they came": (
        left(lived((mapped(2), "m"), (progress(2, _1=8, _0=7), "m"), (collected(b"[8,7]"), "m"), OVER)),
        "the results of 'm' are not its items'",
    ),
    "I19: one is missing": (
        left(lived((mapped(2), "m"), (progress(2, _1=8, _0=7), "m"), (collected(b"[7]"), "m"), OVER)),
        "the results of 'm' are not its items'",
    ),
    "I19: done twice": (
        left(lived((mapped(2), "m"), (progress(2, _1=8), "m"), (progress(2, _1=8), "m"))),
        "item 1 of 'm' has two outcomes",
    ),
    "I19: one too many": (
        left(lived((mapped(1), "m"), (progress(1, _1=8), "m"))),
        "'m' has no item 1",
    ),
    "I20: planned in the order in which it was done": (
        left(lived(*DID_A_AND_B, (undo("a", "b"), "undo"), *UNDID_A, *UNDID_B,
                   (CompensationCompleted(steps_compensated=["a", "b"]), "undo"), BROKEN)),
        "the reverse of what was done",
    ),
    "I20: one is forgotten": (
        left(
            lived(
                (started(), "a"), (DONE, "a"), (started(), "a#2"), (DONE, "a#2"),
                (undo("a#2"), "undo"), (started(), "undo/a#2"), (DONE, "undo/a#2"),
                (CompensationCompleted(steps_compensated=["a#2"]), "undo"), BROKEN,
            )
        ),
        "not ['a#2', 'a']",
    ),
    "I20: what was not done": (
        left(lived((started(), "a"), (failed(), "a"), (undo("a"), "undo"), *UNDID_A,
                   (CompensationCompleted(steps_compensated=["a"]), "undo"), BROKEN)),
        "and not []",
    ),
    "I20: not as planned": (
        left(lived(*DID_A_AND_B, (undo("b", "a"), "undo"), *UNDID_A, *UNDID_B, ALL_UNDONE, BROKEN)),
        "'a' was undone before 'b'",
    ),
    "I20: side by side": (
        left(lived(*DID_A_AND_B, (undo("b", "a"), "undo"), (started(), "undo/b"), *UNDID_A,
                   (DONE, "undo/b"), ALL_UNDONE, BROKEN)),
        "before the undoing of 'b' had ended",
    ),
    "I20: twice": (
        left(lived(*DID_A_AND_B, (undo("b", "a"), "undo"), *UNDID_B, *UNDID_A, ALL_UNDONE,
                   (undo("b", "a"), "undo"), BROKEN)),
        "it is undone twice",
    ),
    "I20: cut short": (
        left(lived(*DID_A_AND_B, (undo("b", "a"), "undo"), *UNDID_B, GONE)),
        "it ended before ['a'] were undone",
    ),
    "I20: a failure that nobody is told of": (
        left(lived(*DID_A_AND_B, (undo("b", "a"), "undo"), (started(), "undo/b"),
                   (failed(), "undo/b"), *UNDID_A, BROKEN)),
        "that ['b'] could not be undone is not reported",
    ),
    "I20: a failure that is told as a success": (
        left(lived(*DID_A_AND_B, (undo("b", "a"), "undo"), (started(), "undo/b"),
                   (failed(), "undo/b"), (CompensationFailed(failed_step="b", error="no"), "undo/b"),
                   *UNDID_A, ALL_UNDONE, BROKEN)),
        "it says that ['b', 'a'] are undone",
    ),
    "I20: undone, and yet completed": (
        left(lived(*DID_A_AND_B, (undo("b", "a"), "undo"), *UNDID_B, *UNDID_A, ALL_UNDONE, OVER)),
        "and is completed",
    ),
    "I21: not there": (left(lived((child(), "c"), GONE)), "its child 'r~c' is not there"),
    "I21: somebody else's": (
        left(lived((child(), "c"), (CHILD_IS_DONE, "c"), OVER), lived(OVER, id="r~c", parent="s")),
        "thinks it is of 's'",
    ),
    "I21: begun twice": (
        left(lived((child(), "c"), (child(), "c"), (CHILD_IS_DONE, "c"), OVER), THE_CHILD),
        "was started twice",
    ),
    "I21: told twice": (
        left(lived((child(), "c"), (CHILD_IS_DONE, "c"), (CHILD_IS_DONE, "c"), OVER), THE_CHILD),
        "no operation waits for the outcome of 'c'",
    ),
    "I21: another outcome": (
        left(lived((child(), "c"), (CHILD_FAILED, "c"), OVER), THE_CHILD),
        "that is completed",
    ),
    "I21: another result": (
        left(lived((child(), "c"), (ChildCompleted(child_run_id="r~c"), "c"), OVER), THE_CHILD),
        "says that 'r~c' has ChildCompleted",
    ),
    "I21: left behind": (
        left(
            lived((child(), "c"), OVER),
            lived((timer(60), "timer"), id="r~c", parent="r", runnable_at=at(60)),
        ),
        "no run waits for it any more",
    ),
    "I24: still claimed": (left(lived((waiting(), "x"), owner="w")), "still claimed by 'w'"),
    "I24: nobody goes on": (left(lived(status=Status.RUNNING)), "no worker continues it"),
    "I24: it could go on": (
        left(lived((timer(-1), "timer"), runnable_at=at(-1))),
        "it could go on since",
    ),
    "I24: nobody will wake it": (left(lived((timer(60), "timer"))), "would wake at None"),
    "I24: woken too late": (
        left(lived((timer(60), "timer"), (waiting(timeout=30), "x"), runnable_at=at(60))),
        "would wake at",
    ),
    "I24: nobody will try again": (
        left(lived((started(), "a"), (failed(again=60), "a"))),
        "would wake at None",
    ),
    "I24: nobody does what has begun": (
        left(lived((started(), "a"), (waiting(), "x"), wait_kind="signal")),
        "'a' is open, and neither runs nor waits in a queue",
    ),
    "I24: no moment to wake at": (
        left(lived((waiting(), "x"), wait_kind="timer")),
        "waits for a moment at which nothing wakes it",
    ),
    "I24: a signal that is there": (
        left(lived((waiting(), "x"), inbox=[SIGNAL])),
        "signal 'go', which is in its inbox",
    ),
    "I24: a child that has ended": (
        left(lived((child(), "c")), THE_CHILD),
        "waits for 'r~c', which is completed",
    ),
}  # fmt: skip
