"""Moving runs from one store to another, live ones included, while workers run on both.

::

    source                                        target
    ──────                                        ──────
    1 seal    claim by force, close the run with
              `workflow.moved`; what closing drops
              (tasks, timers, status) is kept in
              the same commit
    2 load    nothing changes any more
                                                  3 arrive   the record, all events, inbox, tasks …
                                                             in one commit, held by the mover under
                                                             a token greater than the source's
    4 mark    all of the family has come
                                                  5 settle   give the hold back: it goes on here
    6 forget  one record is left that says where

A tree is moved as a whole, in one atomic batch where the store can do that, and so are children with
ids of their own. After any of these a mover may be killed: what is sealed stays sealed, and the next
one finds it and goes on. A run whose life has arrived is never brought again, whatever became of it
there. Whoever sends to a run that is sealed, or asks for
it, is told where it is (`outlast.errors.Moved`). A step that was under way is interrupted, as if its
worker had died, and made again.
"""

from outlast.transfer.bundle import Bundle
from outlast.transfer.export import Restored, gather, restore
from outlast.transfer.move_runs import Moves, move, move_runs
from outlast.transfer.tombstone import address_of

__all__ = [
    "Bundle",
    "Moves",
    "Restored",
    "address_of",
    "gather",
    "move",
    "move_runs",
    "restore",
]
