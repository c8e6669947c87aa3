"""What the server's verdicts mean."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.errors import (
    Busy,
    Conflict,
    DuplicateEvent,
    Fenced,
    NotFound,
    RunClosed,
    RunExists,
    StoreFault,
)
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed, Outcome, Refusal
from outlast.model.inbox import Receipt, Send
from outlast.stores.postgres.rows import STATUS, Row, unquote


def outcome_of(commit: Commit, row: Row) -> Outcome:
    """What became of one commit."""
    _, verdict, uid, sequence, revision, token, detail, still_runnable, fired, undelivered = row
    run_id = commit.run_id
    match verdict:
        case "done" | "again":
            return Committed(
                run_id=run_id,
                uid=unquote(uid),
                sequence=sequence,
                revision=revision,
                token=token,
                still_runnable=still_runnable,
                fired=tuple(unquote(id) for id in fired or ()),
                undelivered=tuple(undelivered or ()),
                again=verdict == "again",
            )
        case "busy":
            return Busy(f"run {run_id!r}, or one that it sends to, is locked by somebody else")
        case "held back":
            return Busy("not written: another commit of this atomic batch was refused")
        case "not found":
            return NotFound("run", run_id)
        case "exists":
            return RunExists(run_id, unquote(uid))
        case "fenced":
            return Fenced(f"run {run_id!r}", token=commit.token, current=token)
        case "closed":
            return RunClosed(run_id, STATUS[detail])
        case "conflict":
            return Conflict(run_id, expected=commit.expected or 0, actual=sequence)
        case "stale":
            return Conflict(run_id, expected=commit.revision or 0, actual=revision, what="revision")
        case "duplicate":
            return DuplicateEvent(run_id, unquote(detail), sequence)
        case "lost":
            claim = commit.finishes[int(detail) - 1]
            return Fenced(claim.subject, token=claim.token)
    raise StoreFault(f"the server has the unknown verdict {verdict!r} on run {run_id!r}")


def receipts_of(
    sends: Sequence[Send], finishes: Sequence[Claim], rows: Sequence[Row]
) -> list[Receipt | Refusal]:
    """What became of items; raises if a claim that was to be finished was lost."""
    if rows and rows[0][0] == 0:
        claim = finishes[rows[0][2] - 1]
        if rows[0][1] == "busy":
            raise Busy(f"{claim.subject} is locked by somebody else")
        raise Fenced(claim.subject, token=claim.token)
    return [_receipt(send, row) for send, row in zip(sends, rows, strict=True)]


def _receipt(send: Send, row: Row) -> Receipt | Refusal:
    _, verdict, number, token, status = row
    match verdict:
        case "done" | "again":
            return Receipt(number, again=verdict == "again")
        case "not found":
            return NotFound("run", send.run_id)
        case "fenced":
            return Fenced(f"run {send.run_id!r}", token=None, current=token)
        case "closed":
            return RunClosed(send.run_id, STATUS[status])
    return Busy(f"run {send.run_id!r} is locked by somebody else")
