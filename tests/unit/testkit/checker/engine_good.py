"""What an engine may write, told by hand: for each invariant some histories that keep it."""

from __future__ import annotations

from outlast.model import Item, Status
from outlast.model.payloads import (
    CompensationCompleted,
    CompensationFailed,
    StepLost,
)
from outlast.testkit.checker import Evidence, Fate
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

SLEEPS = lived((timer(60), "timer"), runnable_at=at(60), wait_kind="timer")

GOOD: dict[str, Evidence] = {
    "I5: a claim is named": left(lived(), log=Log().commit((started(), "a"))),
    "I5: a run is taken by force": left(
        lived(GONE), log=Log().commit(GONE, force=True, token=None, expected=None, sequence=2)
    ),
    "I8: an item runs, and is recorded": left(
        lived((mapped(1), "m"), (progress(1, _0=7), "m"), (collected(b"[7]"), "m"), OVER),
        log=Log()
        .commit((mapped(1), "m"), sequence=2)
        .body("m[0]")
        .commit((progress(1, _0=7), "m"), sequence=3),
    ),
    "I8: a zombie cannot know": left(
        lived((mapped(1), "m"), (progress(1, _0=7), "m"), (collected(b"[7]"), "m"), OVER),
        log=Log()
        .commit((mapped(1), "m"), sequence=2)
        .body("m[0]")
        .commit((progress(1, _0=7), "m"), sequence=3)
        .body("m[0]", stale=True),
    ),
    "I9: an item that is done ran": left(
        lived((mapped(1), "m"), (progress(1, _0=7), "m"), (collected(b"[7]"), "m"), OVER),
        log=Log().commit((mapped(1), "m"), sequence=2).body("m[0]"),
    ),
    "I10: recorded, then run, twice": left(
        lived((started(), "a"), (started(2), "a"), (DONE, "a"), OVER),
        log=Log()
        .commit((started(), "a"), sequence=2)
        .body("a", ends=False)
        .commit((started(2), "a"), sequence=3)
        .body("a", 2),
    ),
    "I10: the answer was lost, and the intent is there": left(
        lived((started(), "a"), (DONE, "a"), OVER),
        log=Log().commit((started(), "a"), sequence=2, fate=Fate.UNKNOWN).body("a"),
    ),
    "I10: failures do not count as cut off": left(
        lived(
            *((one, "a") for n in range(1, 5) for one in (started(n), failed(n, again=0))),
            (started(5), "a"),
            (failed(5), "a"),
            BROKEN,
        )
    ),
    "I10: an attempt alone that was stopped is not cut off": left(
        lived(
            *((started(n), "a") for n in range(1, 4)),
            (started(4, alone=True), "a"),
            (failed(4, again=0), "a"),
            (started(5), "a"),
            (DONE, "a"),
            OVER,
        )
    ),
    "I10: an attempt alone whose owner lost its lease is not cut off": left(
        lived(
            *((started(n), "a") for n in range(1, 4)),
            (started(4, alone=True), "a"),
            (StepLost(attempt=4), "a"),
            (started(5), "a"),
            (DONE, "a"),
            OVER,
        )
    ),
    "I13: record and history agree": left(lived(OVER), lived(BROKEN, id="s")),
    "I15: in time": left(
        lived(
            (timer(60), "timer"),
            (waiting(timeout=30), "signal:go"),
            (LATE, "signal:go", 30),
            (FIRED, "timer", 61),
            (started(), "a", 61),
            (failed(again=90), "a", 61),
            (started(2), "a", 90),
            (DONE, "a", 91),
            OVER,
        )
    ),
    "I15: given up": left(
        lived(
            (timer(60), "timer"),
            (NO_MORE, "timer"),
            (timer(60), "timer#2"),
            (FIRED, "timer#2", 60),
            OVER,
        )
    ),
    "I16: taken as they were sent": left(
        lived((waiting(), "x"), (received(), "x"), (waiting(), "y"), (received(b"2"), "y"), OVER),
        log=Log()
        .send(1)
        .send(2, b"2")
        .commit(
            (received(), "x"), (waiting(), "y"), (received(b"2"), "y"), consumes=(1, 2), sequence=3
        ),
    ),
    "I16: by name, not by number": left(
        lived(
            (waiting(), "x"),
            (received(), "x"),
            (waiting("no"), "y"),
            (received(b"2", "no"), "y"),
            OVER,
        ),
        log=Log()
        .send(1, b"2", "no")
        .send(2)
        .commit((received(), "x"), (waiting("no"), "y"), sequence=3, consumes=(2,))
        .commit((received(b"2", "no"), "y"), sequence=5, consumes=(1,)),
    ),
    "I19: in the order of the items": left(
        lived(
            (mapped(3), "m"),
            (progress(3, _2=9, _0=7), "m"),
            (progress(3, _1=8), "m"),
            (collected(b"[7,8,9]"), "m"),
            OVER,
        )
    ),
    "I19: two were enough": left(
        lived(
            (mapped(3), "m"), (progress(3, _2=9, _0=7), "m"), (collected(b"[7,null,9]"), "m"), OVER
        )
    ),
    "I20: in reverse": left(
        lived(*DID_A_AND_B, (undo("b", "a"), "undo"), *UNDID_B, *UNDID_A, ALL_UNDONE, BROKEN)
    ),
    "I20: one fails, and is told": left(
        lived(
            *DID_A_AND_B,
            (undo("b", "a"), "undo"),
            (started(), "undo/b"),
            (failed(), "undo/b"),
            (CompensationFailed(failed_step="b", error="no"), "undo/b"),
            *UNDID_A,
            BROKEN,
        )
    ),
    "I20: some cannot be undone": left(
        lived(
            *DID_A_AND_B,
            (undo("a"), "undo"),
            *UNDID_A,
            (CompensationCompleted(steps_compensated=["a"]), "undo"),
            BROKEN,
        )
    ),
    "I20: terminated meanwhile": left(
        lived(*DID_A_AND_B, (undo("b", "a"), "undo"), GONE),
        log=Log().commit(GONE, force=True, sequence=7),
    ),
    "I21: a child and its outcome": left(
        lived((child(), "c"), (CHILD_IS_DONE, "c"), OVER), THE_CHILD
    ),
    "I21: a child that goes on alone": left(
        lived((child(policy="abandon"), "c"), OVER),
        lived((timer(60), "timer"), id="r~c", parent="r", runnable_at=at(60)),
    ),
    "I24: it sleeps until it is due": left(SLEEPS),
    "I24: it waits for a signal that has not come": left(
        lived((waiting(), "x"), inbox=[Item(kind="signal", name="other", id="i", number=1)])
    ),
    "I24: it is paused": left(lived((timer(-5), "timer"), status=Status.PAUSED)),
    "I24: there is more to come": left(lived(status=Status.RUNNING, owner="w"), settled=False),
}
