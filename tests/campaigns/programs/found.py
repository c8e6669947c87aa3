"""Programs that broke a promise once, as small as they were made: each is run in every suite."""

from __future__ import annotations

from tests.campaigns.programs.program import (
    Act,
    Ask,
    Case,
    Child,
    Continue,
    Fault,
    Gather,
    Halt,
    Loop,
    Map,
    Publish,
    Raise,
    Scope,
    Signal,
    Sleep,
    Step,
    Try,
)

BUSY = Fault("busy", at=2, seconds=1)
DIES = Fault("dies before", at=3)

FOUND: dict[str, Case] = {
    # -- snapshots ------------------------------------------------------------------------------
    "a step that was open at a snapshot": Case(
        (Step(),), faults=(Fault("dies after"),), snapshots=True
    ),
    "a map that was open at a snapshot": Case(
        (Map(items=1),), faults=(Fault("dies after"),), snapshots=True
    ),
    "a map, a graceful stop and a snapshot": Case(
        (Step(), Map(seconds=4)), acts=(Act("reopen", seconds=1),), snapshots=True
    ),
    "a loop with a late compensation": Case(
        (Loop((Step(), Step(undo="ok")), 3), Signal()), snapshots=True, evicts=True
    ),
    "a child that was open at a snapshot": Case(
        (Child((Step(), Step())),), faults=(DIES,), snapshots=True
    ),
    # -- patience -------------------------------------------------------------------------------
    "a busy row and a step": Case((Step(),), faults=(BUSY,)),
    "a busy row and a step that may begin once": Case((Step(at_most_once=True),), faults=(BUSY,)),
    "a busy row and an undo": Case(
        (Step(undo="ok"), Step(raises=1)), faults=(Fault("busy", at=4, seconds=1),)
    ),
    "a row that is busy for longer than the lease": Case(
        (Step(seconds=1),), faults=(Fault("busy", at=2, seconds=12),)
    ),
    "three short outages": Case(
        (Step(seconds=1), Step(seconds=1)),
        faults=tuple(Fault("away", at=at, seconds=3) for at in (2, 3, 4)),
    ),
    "a start that was not answered, and a busy row": Case(
        (Step(at_most_once=True),), faults=(Fault("busy", at=2, seconds=10), Fault("answer lost"))
    ),
    "an outage while a map runs": Case(
        (Map(items=3, seconds=1),), faults=(Fault("away", at=2, seconds=3),)
    ),
    # -- the saga -------------------------------------------------------------------------------
    "a branch that goes on while another failed": Case(
        (
            Gather(
                (
                    (Step(undo="ok"), Step(seconds=1, undo="ok"), Step(seconds=4, undo="ok")),
                    (Step(seconds=1, raises=1),),
                )
            ),
        )
    ),
    "a branch that begins a step during the undo": Case(
        (
            Step(undo="ok"),
            Gather(((Step(seconds=1, raises=2),), (Step(seconds=1), Step()), (Step(),))),
        )
    ),
    "an item that is done when another branch fails": Case(
        (Gather(((Map(seconds=1, concurrency=1, undo="ok"),), (Step(seconds=1, raises=1),))),)
    ),
    "a queued step that is done when another branch fails": Case(
        (Gather(((Step(seconds=1, raises=1),), (Step(seconds=1, queued=True, undo="ok"),))),)
    ),
    "a cancel while a queued step runs": Case(
        (Step(seconds=1, queued=True, undo="ok"),), acts=(Act("cancel", commits=1),)
    ),
    "a cancel while a queued step is asked for": Case(
        (Step(seconds=1, undo="ok"), Step(queued=True)),
        acts=(Act("cancel", seconds=1),),
        faults=(Fault("away", seconds=1),),
    ),
    # -- children -------------------------------------------------------------------------------
    "a child that outlives a life": Case(
        (Child((Sleep(12), Step()), abandon=True, wait="never"), Sleep(), Continue())
    ),
    "a child that ends with a life": Case((Child((Signal(),), wait="never"), Sleep(), Continue())),
    "a child that is begun in the last commit": Case((Child((Signal(),), wait="never"),)),
    "an own child that is begun in the last commit": Case(
        (Child((Signal(),), own_id=True, wait="never"),)
    ),
    "a retry beside a child that runs": Case(
        (
            Child((Step(), Sleep(12)), abandon=True, wait="never"),
            Sleep(),
            Step(raises=1),
            Sleep(12),
        ),
        acts=(Act("retry", seconds=2),),
    ),
    "a child whose id is taken, and an outage": Case(
        (Child((Step(),), taken=True),), faults=(Fault("away", at=2, seconds=5, any_call=True),)
    ),
    "a terminate while a child begins": Case(
        (Step(), Child((Signal(),), wait="never"), Step(), Child((Signal(),)), Step()),
        acts=(Act("terminate", commits=2),),
    ),
    "a child that is deleted": Case((Child((Sleep(),)),), acts=(Act("delete", commits=1, run=1),)),
    "a child that is cancelled and fails to undo, and a crash": Case(
        (Child((Try((Step(queued=True, undo="fails"),), final=(Raise(),)),), wait="never"),),
        faults=(Fault("dies after", at=9),),
    ),
    # -- what was acknowledged ------------------------------------------------------------------
    "a retry and a signal that was not taken": Case(
        (Step(seconds=4, raises=1), Signal()), acts=(Act("signal", commits=1), Act("retry"))
    ),
    "a retry beside a step that was done": Case(
        (Gather(((Step(raises=1),), (Step(at_most_once=True),))),), acts=(Act("retry"),)
    ),
    "a retry of a step in a scope": Case(
        (Scope((Step(raises=1, at_most_once=True),)),), acts=(Act("retry"),)
    ),
    "a retry of a step under which two workers die": Case(
        (Step(raises=1),), acts=(Act("retry"),), faults=(Fault("dies after", at=3),) * 2
    ),
    "a retry of a map under which two workers die": Case(
        (Map(items=1, fails=(0,)),), acts=(Act("retry"),), faults=(Fault("dies after", at=3),) * 2
    ),
    "a fork beside a step that must not be repeated": Case(
        (Gather(((Step(raises=1, at_most_once=True),), (Step(),))),), acts=(Act("fork"),)
    ),
    "a fork beside a step under which two workers die": Case(
        (Gather(((Step(),), (Step(raises=1, attempts=2),))),),
        acts=(Act("fork"),),
        faults=(
            Fault("answer lost"),
            Fault("dies after", at=9),
            Fault("dies before", at=7),
        ),
    ),
    "an outage of two leases, and a queue that is not away": Case(
        (Gather(((Step(seconds=11, queued=True),), (Step(queued=True),))),),
        faults=(Fault("away", at=7, any_call=True, seconds=20),),
    ),
    "a queued step that is asked for while another branch fails": Case(
        (
            Gather(
                (
                    (Step(seconds=1), Step(queued=True, undo="fails")),
                    (Step(seconds=1, raises=1),),
                )
            ),
        )
    ),
    "a retry of a scope whose code has raised": Case(
        (Scope((Map(), Raise())),), acts=(Act("retry"),)
    ),
    "a retry of a scope that passed an error on": Case(
        (Scope((Step(), Scope((Step(), Raise())))),), acts=(Act("retry"),)
    ),
    "a retry of a loop whose code has raised": Case(
        (Loop((Step(), Raise())),), acts=(Act("retry"),)
    ),
    "an answer over two lives": Case(
        (Signal(), Continue(3)),
        handler=(),
        acts=(Act("update", commits=1, dedup="k"), Act("update", dedup="k")),
    ),
    "an answer over three lives": Case(
        (Signal(), Continue(4)),
        handler=(),
        acts=(
            Act("update", commits=1, dedup="k"),
            Act("update", dedup="k"),
            Act("signal"),
            Act("update", dedup="k"),
            Act("signal"),
            Act("update", dedup="k"),
        ),
    ),
    # -- stopping -------------------------------------------------------------------------------
    "a graceful stop and a step that may begin once": Case(
        (Step(seconds=4, at_most_once=True),), acts=(Act("reopen", commits=1),)
    ),
    # -- replay ---------------------------------------------------------------------------------
    "a scope that is over at once, beside a step": Case(
        (Gather(((Publish(), Scope((Publish(),))), (Step(queued=True),))),)
    ),
    "a loop that is over at once, beside a step": Case(
        (Gather(((Loop((Publish(),)),), (Step(queued=True),))),)
    ),
    "a scope that fails before the undo, and a crash": Case(
        (Map(undo="ok"), Scope((Step(), Raise()))), faults=(Fault("dies before", at=4),)
    ),
    "a scope that fails while a map is undone": Case(
        (Gather(((Map(items=1, undo="fails"),), (Scope((Step(seconds=1, raises=1),)),))),)
    ),
    # -- workers that stand still ---------------------------------------------------------------
    "a map of a worker that stood still": Case(
        (Map(items=3, seconds=1, concurrency=1),),
        faults=(Fault("dies before"), Fault("stands still", at=3, seconds=12)),
        workers=2,
    ),
    # -- transactions and clocks ----------------------------------------------------------------
    "a transaction whose worker dies after its COMMIT": Case(
        (Step(transactional=True, at_most_once=True),), faults=(Fault("dies after", at=2),)
    ),
    "a transaction whose COMMIT is not answered, and an undo": Case(
        (Step(transactional=True, undo="ok"), Raise()), faults=(Fault("answer lost", at=2),)
    ),
    "a map beside a transaction whose COMMIT is not answered": Case(
        (Gather(((Step(transactional=True),), (Map(concurrency=1),))),),
        faults=(Fault("answer lost", at=3),),
        workers=2,
    ),
    "a transaction that failed in a worker that stood still": Case(
        (Step(raises=1, transactional=True),),
        faults=(Fault("stands still", at=3, seconds=11),),
        workers=2,
    ),
    "a transaction of a worker that stood still": Case(
        (Step(transactional=True),), faults=(Fault("stands still", at=2, seconds=25),), workers=2
    ),
    "a transaction that is rolled back": Case(
        (Step(transactional=True, raises=1, attempts=2),), faults=(Fault("dies before", at=3),)
    ),
    "a clock that is set back in a sleep, and a crash": Case(
        (Sleep(12), Step()), faults=(Fault("clock back", at=2), Fault("dies after", at=3))
    ),
    # -- errors ---------------------------------------------------------------------------------
    "a step that raises KeyboardInterrupt": Case((Step(raises=1, error="KeyboardInterrupt"),)),
    "a step that raises GeneratorExit": Case((Step(raises=1, error="GeneratorExit"),)),
    "a queued step that raises GeneratorExit": Case(
        (Step(raises=1, error="GeneratorExit", queued=True),)
    ),
    "two workers, and the first answer is lost": Case(
        (Step(seconds=4), Step()), faults=(Fault("answer lost", at=1),), workers=2
    ),
    "halts in two lives": Case((Loop((Halt(), Halt()), 3), Continue()), workers=2),
    "questions side by side in two lives, the worker dies": Case(
        (Gather(((Halt(),), (Ask(4),))), Step(), Continue()),
        acts=(Act("answer"), Act("answer", seconds=5)),
        faults=(Fault("dies after", at=2),),
        workers=2,
        snapshots=True,
        evicts=True,
    ),
    "a retried run whose named child was deleted": Case(
        (Child((Step(raises=1),), own_id=True),), acts=(Act("delete", run=1), Act("retry"))
    ),
    "a fork of a run that was undone": Case(
        (Step(undo="ok"), Raise()), acts=(Act("fork"), Act("retry"))
    ),
    "a fork of a fork of a run that was undone": Case(
        (Child(()), Try((Loop((Step(undo="ok"),)),), final=(Raise(),))),
        acts=(Act("fork"), Act("fork", run=2)),
    ),
    "a paused run that is stopped in a step that must not be repeated": Case(
        (Step(seconds=7, at_most_once=True),),
        acts=(Act("pause", commits=1), Act("reopen", seconds=1)),
        faults=(Fault("busy", at=5, any_call=True, seconds=2),),
        workers=2,
    ),
    # -- the next life ----------------------------------------------------------------------------
    "a report of a queued step that comes after its life": Case(
        (
            Try(
                (
                    Gather(
                        (
                            (Try((Step(seconds=1),), final=(Raise(),)),),
                            (Step(seconds=1, queued=True),),
                        )
                    ),
                )
            ),
            Continue(),
        )
    ),
    "a transaction that is committed after its branch was given up": Case(
        (
            Try((Gather(((Raise(),), (Step(transactional=True),))),), final=(Step(),)),
            Continue(),
        )
    ),
    "a busy row, and a task of a life that is over": Case(
        (Try((Gather(((Raise(),), (Step(queued=True),))),)), Continue()),
        faults=(Fault("busy", at=2, seconds=1),),
    ),
    "a start that was not answered, and a store that is away": Case(
        (Step(at_most_once=True),),
        faults=(Fault("answer lost"), Fault("away", at=4, any_call=True, seconds=1)),
    ),
    "a retried run whose child was retried before and waits": Case(
        (Child((Step(raises=1), Halt())),), acts=(Act("retry", run=1), Act("retry"))
    ),
    "a takeover that reads the history of the next life": Case(
        (Step(queued=True), Continue()),
        acts=(Act("update", seconds=4),),
        faults=(Fault("dies before"), Fault("stands still", at=13, any_call=True, seconds=11)),
        workers=2,
        snapshots=True,
    ),
}
