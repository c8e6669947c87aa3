"""Transfer of runs from one store to another, open runs included, while workers run on both.

::

    source                                         target
    ──────                                         ──────
    1 mark as moving   take the claim by force, close
                       the run with `workflow.moved`;
                       the same commit keeps what
                       closing drops (tasks, timers,
                       status)
    2 load             nothing changes any more
                                                   3 import   record, events, inbox, tasks … in
                                                              one commit, claimed by the mover
                                                              with a token greater than the
                                                              source's
    4 record           the whole family has arrived
                                                   5 release  give up the claim: the run goes on
    6 tombstone_commit             leave a tombstone that says
                       where the run is

A tree moves as a whole, in one atomic batch where the store supports that, and so do children with
ids of their own. The mover may crash after any step: a run that is marked as moving stays marked, and
the next mover finds it and continues. A life that has arrived is never imported again, whatever has
happened to it in the target since. Clients that ask for a moved run get `outlast.errors.Moved` with its
new address. A step in flight is interrupted and retried, as after a crash of its worker.
"""

from outlast.transfer.bundle import Bundle, export_runs
from outlast.transfer.importer import ImportResult, import_runs
from outlast.transfer.mover import MoveResult, move, move_runs
from outlast.transfer.tombstone import address_of

__all__ = [
    "Bundle",
    "ImportResult",
    "MoveResult",
    "address_of",
    "export_runs",
    "import_runs",
    "move",
    "move_runs",
]
