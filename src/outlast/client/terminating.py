"""How a run is ended from outside, whoever holds it: nothing of its code has a say."""

from __future__ import annotations

from contextlib import suppress

from outlast.client.moves import find_here
from outlast.engine.ending import child_outcome
from outlast.engine.operations.child import cancel_child
from outlast.engine.replanting import open_children
from outlast.errors import Undecodable
from outlast.model.commit import Commit
from outlast.model.event_data import to_event
from outlast.model.inbox import Send
from outlast.model.payloads import WorkflowCancelled
from outlast.model.run import Change, Status
from outlast.ports.store import Store


async def termination(store: Store, run_id: str, reason: str) -> Commit:
    """The commit that ends a run as it is now, and tells its parent and its children. One whose record
    cannot be read is ended all the same."""
    end = WorkflowCancelled(reason=reason)
    sends: list[Send] = []
    uid = None
    with suppress(Undecodable):
        run = await find_here(store, run_id)
        uid = run.uid
        if run.parent is not None:
            sends.append(child_outcome(run, end))
        children = open_children(await store.history(run_id)).values()
        sends += [
            cancel_child(child.child_run_id, run.uid, "its parent has ended")
            for child in children
            if not child.parent_close
        ]
    return Commit(
        run_id=run_id,
        uid=uid,
        force=True,
        events=(to_event(end, run_id=run_id),),
        change=Change(status=Status.CANCELLED, error=reason, wait_kind=None),
        sends=tuple(sends),
    )
