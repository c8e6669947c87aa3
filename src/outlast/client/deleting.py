"""How a tree of runs is deleted, also while some of its runs are open.

The store removes a tree in one atomic step. A run of it that is open would end without a trace: runs outside
of the tree that wait for one of its runs, or were started by one, have to learn of that in the same step.
Which runs these are stands in the histories of the open runs, so these are read first, and the step is refused
if one of them was written to since, or another one has begun: then that one is read again. Nothing is
written before that step, so that a crash leaves all or nothing::

    delete ──▶ RunsOpen: a, b ──▶ read a, b ──▶ delete, a and b as they were read, with messages ──▶ done
                    ▲                                      │
                    └──────── one of them went on ─────────┘
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial

from outlast.client.moved_runs import find_here, when_free
from outlast.client.terminate import RACES, Attempt, hold_up, told_of_end
from outlast.errors import NotFound, RunsOpen, Undecodable
from outlast.model.ids import SEPARATOR
from outlast.model.payloads import WorkflowCancelled
from outlast.model.run_contents import Send
from outlast.ports.store import Store


async def delete_tree(
    store: Store, run_id: str, uid: str | None, *, force: bool, patience: float, attempt: Attempt
) -> tuple[bool, list[str]]:
    """Remove a run with its descendants; whether it was there, and which of them were open. `RunsOpen` if
    there are any, unless by `force`; `Busy` if the tree was locked for `patience` seconds."""
    clock = store.clock
    open_at: dict[str, str | None] = {}
    sends: dict[str, list[Send]] = {}
    races: Counter[str] = Counter()
    while True:
        remove = partial(
            store.delete,
            run_id,
            uid=uid,
            only_ended=True,
            open_at=open_at,
            sends=[send for one in sends.values() for send in one],
        )
        try:
            was_there = await when_free(clock, remove, clock.monotonic() + patience, patience)
            return was_there, list(open_at)
        except RunsOpen as refusal:
            if not force:
                raise
            for open in refusal.open:
                races[open] += 1
                if races[open] % RACES == 0:
                    await hold_up(open, None, attempt)
                open_at.pop(open, None)
                with suppress(NotFound):
                    open_at[open], sends[open] = await _seen(store, run_id, open)


async def _seen(store: Store, root: str, run_id: str) -> tuple[str | None, list[Send]]:
    """The last commit of an open run in a tree that is deleted, and what runs outside of the tree have to
    learn of its end. One whose record cannot be read is deleted as it is."""
    with suppress(Undecodable):
        run = await find_here(store, run_id)
        end = WorkflowCancelled(reason=f"deleted with {root!r}")
        told = told_of_end(run, await store.history(run_id), end)
        return run.commit_id, [send for send in told if not _is_below(send.run_id, root)]
    return None, []


def _is_below(run_id: str, root: str) -> bool:
    return run_id == root or run_id.startswith(root + SEPARATOR)
