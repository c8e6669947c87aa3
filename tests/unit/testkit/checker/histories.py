"""Histories told by hand: for each invariant some that keep it and some that do not."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Raw
from msgspec.structs import replace

from outlast.model import Creation, Entry, Run, Start, Status, Task, Timer
from outlast.testing.virtual_clock import START
from outlast.testkit.checker import Evidence
from outlast.testkit.dump import RunDump
from tests.unit.testkit.checker.building import (
    END,
    FAILED,
    UNKNOWN,
    Story,
    ended,
    ev,
    item,
    life,
    seen,
)

TIMER = Timer(run_id="r", id="t", fire_at=START + timedelta(seconds=5))
LINE = Entry(id="a", run_id="r", step_id="s", action="completed")
CHILD = Start(Run(id="r~1", uid="k", parent="r"))
DONE = {"type": "step.completed", "step_name": "pay"}
OVER = ev(2, type="workflow.completed")


def told(*lives_: object, complete: bool = False) -> Evidence:
    """Only dumps, nobody's log."""
    return Story().then(*lives_, complete=complete)  # type: ignore[arg-type]


def stale_counter() -> RunDump:
    """A run that has handed out fewer numbers than one of its items bears."""
    dumped = life(inbox=[item(3, "a")])
    return replace(dumped, run=replace(dumped.run, inbox=2))


GOOD: dict[str, Evidence] = {
    "I1: 1, 2, 3": told(seen(life(ev(1), ev(2), ev(3)))),
    "I1: an empty run": told(seen(life())),
    "I2: a history grows": told(seen(life(ev(1))), seen(life(ev(1), ev(2)))),
    "I2: another life may differ": told(seen(life(ev(1))), seen(life(ev(1, "x"), uid="v"))),
    "I2: a run is deleted": told(seen(life(ev(1))), seen()),
    "I3: acked and there": Story().start().commit("c1", "e1", "e2").then(seen(life(ev(1), ev(2)))),
    "I3: acked and deleted": Story().start().commit("c1", "e1").delete().then(seen()),
    "I3: acked and perhaps deleted": (
        Story().start().commit("c1", "e1").delete(fate=UNKNOWN).then(seen())
    ),
    "I3: acked and replaced": (
        Story()
        .start()
        .commit("c1", "e1")
        .commit("c2", create=Run(id="r", uid="v"), creation=Creation.REPLACE, life="v")
        .then(seen(life(uid="v")))
    ),
    "I3: unknown, and not there": Story()
    .start()
    .commit("c1", "e1", fate=UNKNOWN)
    .then(seen(life())),
    "I3: unknown, repeated, acked again": (
        Story()
        .start()
        .commit("c1", "e1", fate=UNKNOWN)
        .commit("c1", "e1", again=True)
        .then(seen(life(ev(1))))
    ),
    "I4: unknown, and there": (
        Story().start().commit("c1", "e1", fate=UNKNOWN).then(seen(life(ev(1))))
    ),
    "I4: first unknown, then refused": (
        Story()
        .start()
        .commit("c1", "e1", fate=UNKNOWN)
        .commit("c1", "e1", fate=FAILED)
        .then(seen(life(ev(1))))
    ),
    "I4: somebody else wrote too": told(seen(life(ev(1)))),
    "I4: the events of a child": (
        Story()
        .start()
        .commit("c1", "e1", starts=(Start(CHILD.run, (ev(0, "k1", run_id="r~1"),)),))
        .then(seen(life(ev(1)), life(ev(1, "k1", run_id="r~1"), id="r~1", uid="k")))
    ),
    "I5: tokens grow along the history": (
        told(seen(life(ev(1), ev(2, token=1), ev(3, token=1), ev(4, token=5))))
    ),
    "I5: written under the current claim": (
        Story().start().claim(1, "a").commit("c1", "e1", token=1).then(seen(life(ev(1, token=1))))
    ),
    "I5: written before the claim was answered": (
        Story()
        .commit("c1", "e1", create=Run(id="r", uid="u"))
        .claim(1)
        .overlapping()
        .then(seen(life(ev(1), token=1)))
    ),
    "I5: taken by force": (
        Story().start().claim(1).commit("c1", "e1", force=True).then(seen(life(ev(1, token=2))))
    ),
    "I6: each claim is greater": Story().start().claim(1).claim(2).then(seen(life(token=2))),
    "I6: claims at the same time": (
        Story()
        .claim(2)
        .claim(1, run_id="s")
        .overlapping()
        .then(seen(life(token=2)), complete=False)
    ),
    "I7: each step once": told(seen(life(ev(1, **DONE), ev(2, type="step.completed")))),
    "I7: failed, then completed": (
        told(seen(life(ev(1, type="step.failed", step_name="pay"), ev(2, **DONE))))
    ),
    "I8: done, then recorded": (
        Story()
        .start()
        .effect("pay")
        .commit("c1", ev(0, "e1", **DONE))
        .then(seen(life(ev(1, **DONE))))
    ),
    "I9: tried twice, recorded once": (
        Story()
        .start()
        .effect("pay", ends=False)
        .effect("pay")
        .commit("c1", ev(0, "e1", **DONE))
        .then(seen(life(ev(1, **DONE))))
    ),
    "I11: one begins, the other is refused": (
        Story().start("c1").start("c2", fate=FAILED).then(seen(life()))
    ),
    "I11: begun again after a deletion": (
        Story()
        .start("c1")
        .delete()
        .start("c2", create=Run(id="r", uid="v"), life="v")
        .then(seen(life(uid="v")))
    ),
    "I12: all parts are there": (
        Story()
        .start()
        .send("i", 1)
        .commit("c1", "e1", entries=(LINE,), timers=(TIMER,), consumes=(1,), starts=(CHILD,))
        .then(seen(life(ev(1), entries=[LINE], timers=[TIMER]), life(id="r~1", uid="k")))
    ),
    "I12: no part is there": (
        Story()
        .start()
        .commit("c1", "e1", fate=UNKNOWN, entries=(LINE,), timers=(TIMER,))
        .then(seen(life()))
    ),
    "I12: the end drops timers": (
        Story()
        .start()
        .commit("c1", ev(0, "e1"), ev(0, "e2", type="workflow.completed"), timers=(TIMER,))
        .then(seen(ended(ev(1), OVER)))
    ),
    "I12: an atomic batch refused": (
        Story()
        .start()
        .commit("c1", "e1", fate=FAILED, atomic=True)
        .commit("c2", "f1", fate=FAILED, atomic=True, run_id="s")
        .then(seen(life()))
    ),
    "I13: record and lists agree": (
        told(
            seen(
                life(ev(1), timers=[TIMER]),
                ended(ev(1, run_id="s"), id="s"),
                listed={Status.PENDING: ["r"], Status.COMPLETED: ["s"]},
            )
        )
    ),
    "I16: one consumed, one waits": (
        Story()
        .start()
        .send("a", 1)
        .send("b", 2)
        .send("a", 1, again=True)
        .commit("c1", consumes=(1,))
        .then(seen(life(inbox=[item(2, "b")])))
    ),
    "I16: perhaps consumed": (
        Story().start().send("a", 1).commit("c1", consumes=(1,), fate=UNKNOWN).then(seen(life()))
    ),
    "I16: a report of a lost lease, consumed by an owner that died": (
        Story().start().send("a", 1, kind="lost").then(seen(life()), complete=False)
    ),
    "I16: refused after the end": (
        Story()
        .start()
        .commit("c1", ev(0, "e1", type="workflow.completed"), change=END)
        .send("a", fate=FAILED)
        .then(seen(ended(ev(1, type="workflow.completed"))))
    ),
    "I18: the end is the end": told(seen(life(ev(1))), seen(ended(ev(1), OVER))),
    "I18: an audit line after the end": (
        Story()
        .start()
        .commit("c1", change=END)
        .commit("c2", entries=(LINE,))
        .then(seen(ended(entries=[LINE])))
    ),
    "I25: deleted and gone": Story().start().delete().then(seen()),
    "I25: deleted and begun again": (
        Story()
        .start()
        .commit("c1", "e1")
        .delete()
        .commit("c2", "n1", create=Run(id="r", uid="v"), life="v")
        .then(seen(life(ev(1, "n1"), uid="v")))
    ),
    "I25: neighbours stay": (
        Story()
        .start()
        .commit("c1", create=Run(id="rr", uid="w"), run_id="rr", life="w")
        .delete()
        .then(seen(life(id="rr", uid="w")))
    ),
}

BAD: dict[str, Evidence] = {
    "I1: a gap": told(seen(life(ev(1), ev(3), sequence=3))),
    "I1: begins with 0": told(seen(life(ev(0)))),
    "I1: one number twice": told(seen(life(ev(1), ev(1, "x")))),
    "I1: one event twice": told(seen(life(ev(1, "x"), ev(2, "x")))),
    "I2: an event is changed": told(seen(life(ev(1))), seen(life(ev(1, data=Raw(b"[]"))))),
    "I2: an event is gone": told(seen(life(ev(1), ev(2))), seen(life(ev(1)))),
    "I3: an acked event is lost": Story().start().commit("c1", "e1", "e2").then(seen(life(ev(1)))),
    "I3: an acked run is lost": Story().start().then(seen()),
    "I3: an acked event is elsewhere": (
        Story().start().commit("c1", "e1", at=2).then(seen(life(ev(1))))
    ),
    "I3: an acked life was replaced by nobody": Story().start().then(seen(life(uid="v"))),
    "I3: an acked line is lost": Story().start().commit("c1", entries=(LINE,)).then(seen(life())),
    "I3: an acked child is lost": Story().start().commit("c1", starts=(CHILD,)).then(seen(life())),
    "I3: a failed deletion is no excuse": Story().start().delete(fate=FAILED).then(seen()),
    "I4: an event from nowhere": Story().start().then(seen(life(ev(1)))),
    "I4: an event of a refused commit": (
        Story().start().commit("c1", "e1", fate=FAILED).then(seen(life(ev(1))))
    ),
    "I4: an event that was altered": (
        Story().start().commit("c1", "e1").then(seen(life(ev(1, data=Raw(b'{"x":1}')))))
    ),
    "I4: an item from nowhere": Story().start().then(seen(life(inbox=[item(1, "a")]))),
    "I5: an older token after a newer one": told(seen(life(ev(1, token=2), ev(2, token=1)))),
    "I5: one token for two": (
        Story().start().claim(1, "a").claim(1, "b").then(seen(life(token=1)))
    ),
    "I5: a superseded claim commits": (
        Story()
        .start()
        .claim(1, "a")
        .claim(2, "b")
        .commit("c1", "e1", token=1)
        .then(seen(life(ev(1, token=2))))
    ),
    "I5: a commit without token": (
        Story().start().claim(1).commit("c1", "e1").then(seen(life(ev(1, token=1))))
    ),
    "I6: a token goes back": Story().start().claim(5).claim(3).then(seen(life(token=5))),
    "I6: a counter begins anew after a deletion": (
        Story()
        .start()
        .claim(5)
        .delete()
        .start("c1", create=Run(id="r", uid="v"), life="v")
        .claim(1, uid="v")
        .then(seen(life(uid="v", token=1)))
    ),
    "I6: a record goes back": told(seen(life(token=4)), seen(life(token=3))),
    "I6: a claim is forgotten": Story().start().claim(5).then(seen(life(token=4))),
    "I7: a step is completed twice": told(seen(life(ev(1, **DONE), ev(2, **DONE)))),
    "I8: a step runs after it was recorded": (
        Story()
        .start()
        .effect("pay")
        .commit("c1", ev(0, "e1", **DONE))
        .effect("pay")
        .then(seen(life(ev(1, **DONE))))
    ),
    "I9: a result of nothing": (
        Story()
        .start()
        .effect("pay", ends=False)
        .commit("c1", ev(0, "e1", **DONE))
        .then(seen(life(ev(1, **DONE))))
    ),
    "I11: two begin one run": Story().start("c1").start("c2").then(seen(life())),
    "I11: told of another life": (
        Story().start(create=Run(id="r", uid="v")).then(seen(life()), complete=False)
    ),
    "I12: half of the events": (
        Story().start().commit("c1", "e1", "e2", fate=UNKNOWN).then(seen(life(ev(1))))
    ),
    "I12: torn apart": (
        Story()
        .start()
        .commit("c1", "e1", "e3", fate=UNKNOWN)
        .commit("c2", "e2", fate=UNKNOWN)
        .then(seen(life(ev(1), ev(2), ev(3))))
    ),
    "I12: events without the line": (
        Story().start().commit("c1", "e1", fate=UNKNOWN, entries=(LINE,)).then(seen(life(ev(1))))
    ),
    "I12: the line without events": (
        Story()
        .start()
        .commit("c1", "e1", fate=UNKNOWN, entries=(LINE,))
        .then(seen(life(entries=[LINE])))
    ),
    "I12: events without the timer": (
        Story().start().commit("c1", "e1", timers=(TIMER,)).then(seen(life(ev(1))))
    ),
    "I12: events without the firing": (
        Story()
        .start()
        .commit("c1", "e1", timers=(TIMER,))
        .commit("c2", "e2", fired=("t",), at=2)
        .then(seen(life(ev(1), ev(2), timers=[TIMER])))
    ),
    "I12: events without the child": (
        Story().start().commit("c1", "e1", fate=UNKNOWN, starts=(CHILD,)).then(seen(life(ev(1))))
    ),
    "I12: events without the item consumed": (
        Story()
        .start()
        .send("a", 1)
        .commit("c1", "e1", consumes=(1,))
        .then(seen(life(ev(1), inbox=[item(1, "a")])))
    ),
    "I13: the sequence is wrong": told(seen(life(ev(1), sequence=2))),
    "I13: ended without a time": told(seen(life(status=Status.FAILED))),
    "I13: a time without an end": told(seen(life(ended_at=START))),
    "I13: ended and owned": told(seen(ended(owner="w"))),
    "I13: ended and runnable": told(seen(ended(runnable_at=START))),
    "I13: ended with a timer": told(seen(ended(timers=[TIMER]))),
    "I13: an event above the token": told(seen(life(ev(1, token=3), token=2))),
    "I13: an item above the counter": told(seen(stale_counter())),
    "I13: another run's event": told(seen(life(ev(1, run_id="s")))),
    "I13: listed under an old status": (
        told(seen(life(), listed={Status.RUNNING: ["r"], Status.PENDING: []}))
    ),
    "I13: listed twice": (
        told(seen(life(), listed={Status.PENDING: ["r"], Status.RUNNING: ["r"]}))
    ),
    "I13: a timer of nobody": told(seen(life(), timers=[TIMER])),
    "I13: a snapshot of nobody": told(seen(life(), snapshots=["r"])),
    "I16: an acked item is lost": Story().start().send("a", 1).then(seen(life())),
    "I16: an acked report of a lost lease is lost": (
        Story().start().send("a", 1, kind="lost").then(seen(life()))
    ),
    "I16: an acked item is lost, though owners died": (
        Story().start().send("a", 1).then(seen(life()), complete=False)
    ),
    "I16: consumed and still there": (
        Story()
        .start()
        .send("a", 1)
        .commit("c1", consumes=(1,))
        .then(seen(life(inbox=[item(1, "a")])))
    ),
    "I16: consumed twice": (
        Story()
        .start()
        .send("a", 1)
        .commit("c1", consumes=(1,))
        .commit("c2", consumes=(1,))
        .then(seen(life()))
    ),
    "I16: taken twice": (
        Story()
        .start()
        .send("a", 1)
        .send("a", 2)
        .then(seen(life(inbox=[item(1, "a"), item(2, "a")])))
    ),
    "I16: two share a number": (
        Story().start().send("a", 1).send("b", 1).then(seen(life(inbox=[item(1, "a")])))
    ),
    "I16: out of order": (
        Story()
        .start()
        .send("a", 2)
        .send("b", 1)
        .then(seen(life(inbox=[item(1, "b"), item(2, "a")])))
    ),
    "I16: taken after the end": (
        Story()
        .start()
        .commit("c1", change=END)
        .send("a", 1)
        .then(seen(ended(inbox=[item(1, "a")])))
    ),
    "I18: two endings": (
        told(seen(ended(ev(1, type="workflow.failed"), ev(2, type="workflow.completed"))))
    ),
    "I18: history after the end": (told(seen(ended(ev(1, type="workflow.completed"), ev(2))))),
    "I18: opened again": told(seen(ended(ev(1))), seen(life(ev(1)))),
    "I18: another end": told(seen(ended()), seen(ended(status=Status.FAILED))),
    "I18: written after the end": (
        Story().start().commit("c1", change=END).commit("c2", "e1").then(seen(ended(ev(1))))
    ),
    "I25: the run is still there": Story().start().delete().then(seen(life())),
    "I25: a child is still there": (
        Story().start().commit("c1", starts=(CHILD,)).delete().then(seen(life(id="r~1", uid="k")))
    ),
    "I25: a timer is still there": Story().start().delete().then(seen(timers=[TIMER])),
    "I25: a task is still there": (
        Story().start().delete().then(seen(tasks=[Task(id="t", run_id="r")]))
    ),
    "I25: a snapshot is still there": Story().start().delete().then(seen(snapshots=["r"])),
    "I25: a fact is still there": (
        Story().start().delete().then(seen(facts={("r", "ab" * 32): b"x"}))
    ),
    "I25: an event of the old life": (
        Story()
        .start()
        .commit("c1", "e1")
        .delete()
        .commit("c2", create=Run(id="r", uid="v"), life="v")
        .then(seen(life(ev(1), uid="v")))
    ),
}
