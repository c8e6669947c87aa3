"""Read again and decide: the store said no, and nothing was written."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.errors.root import OutlastError

NAMED = 5
"""How many runs a message names."""
MAX_OPEN_NAMED = 100
"""How many runs an error lists."""


class Refused(OutlastError):
    """The store looked and said no. Nothing was written; read again before you decide."""


class NotFound(Refused, LookupError):
    """There is no such run, task, activity, snapshot or fact. Never stands for a backend fault."""

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(f"there is no {kind} {id!r}")
        self.kind = kind
        self.id = id


class RunExists(Refused):
    """The id belongs to another run. Attach to that one, replace it, or choose another id."""

    def __init__(self, run_id: str, uid: str) -> None:
        super().__init__(
            f"run {run_id!r} exists already (uid {uid}): choose another id, or replace it with "
            "on_conflict='replace'"
        )
        self.run_id = run_id
        self.uid = uid


class Conflict(Refused):
    """Somebody else wrote first. Load the history after `expected` and decide again."""

    def __init__(self, run_id: str, *, expected: int, actual: int, what: str = "sequence") -> None:
        super().__init__(
            f"run {run_id!r} is at {what} {actual}, not {expected}: "
            "somebody wrote first. Read it again and decide again"
        )
        self.run_id = run_id
        self.expected = expected
        self.actual = actual
        self.what = what


class DuplicateEvent(Refused):
    """An event with this id is recorded already, at `sequence`."""

    def __init__(self, run_id: str, event_id: str, sequence: int) -> None:
        super().__init__(
            f"event {event_id!r} of run {run_id!r} is recorded already at sequence {sequence}"
        )
        self.run_id = run_id
        self.event_id = event_id
        self.sequence = sequence


class Fenced(Refused):
    """A newer claim owns the run or the task: stop working on it at once."""

    def __init__(self, what: str, *, token: int | None, current: int | None = None) -> None:
        held = "no token" if token is None else f"token {token}"
        owned = "no longer owned by this claim" if not current else f"owned by claim {current}"
        super().__init__(
            f"{what} is {owned}; this call has {held}. "
            "Stop working on it: whoever holds the newer claim goes on"
        )
        self.token = token
        self.current = current


class RunClosed(Refused):
    """The run has ended; nothing can be added to it."""

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(f"run {run_id!r} is {status}: nothing can be added to it")
        self.run_id = run_id
        self.status = status


class CodeMissing(Refused):
    """No live worker has the code of the run, and without it this cannot be done."""

    def __init__(self, run_id: str, workflow: str, workers: int) -> None:
        live = "1 worker lives and does" if workers == 1 else f"{workers} workers live and do"
        super().__init__(
            f"run {run_id!r} can be cancelled only with the code of its workflow {workflow!r}, which may "
            f"have something to undo: {live} not have it. Start a worker that has it and cancel again, or "
            "terminate the run: that ends it now, and undoes nothing"
        )
        self.run_id = run_id
        self.workflow = workflow


class RunsOpen(Refused):
    """A tree of runs is not deleted while some of them have not ended: `open` names up to 100."""

    def __init__(self, run_id: str, open: Sequence[str]) -> None:
        named = ", ".join(map(repr, open[:NAMED]))
        more = " and more" if len(open) > NAMED else ""
        super().__init__(
            f"run {run_id!r} is not deleted: of its tree {named}{more} did not end yet. Cancel what "
            "runs and wait, or delete with force=True (`outlast rm --force`), which terminates it"
        )
        self.run_id = run_id
        self.open = tuple(open[:MAX_OPEN_NAMED])


class Moved(Refused):
    """The run was moved to another store. Ask there: nothing can be added to it here."""

    def __init__(self, run_id: str, moved_to: str) -> None:
        super().__init__(
            f"run {run_id!r} was moved to {moved_to}: it goes on there. Use an app or "
            f"`outlast --store` with that store"
        )
        self.run_id = run_id
        self.moved_to = moved_to
