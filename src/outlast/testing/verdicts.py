"""Verdicts: what the checker says of a store's final state, a ledger of bodies, and a log of calls,
when some processes may have been zombies."""

from __future__ import annotations

from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed
from outlast.model.payloads import StepStarted, payload_of
from outlast.testing.checker import Evidence, check
from outlast.testing.dump import Dump
from outlast.testing.effects import Execution, Ledger


def violations(final: Dump, ledger: Ledger) -> list[str]:
    """Every promise that was not kept, in sentences."""
    log = ledger.log
    executions = [line for line in ledger.executions if not _is_zombies(line, ledger)]
    effects = [line.effect() for line in executions]
    evidence = Evidence(dumps=[final], ops=log.ops, effects=effects)
    found = [str(violation) for violation in check(evidence)]
    return found + _unrecorded(final, ledger.executions)


def _is_zombies(line: Execution, ledger: Ledger) -> bool:
    """Whether the run had been taken over when this body began: a process that lost its lease
    cannot know at once, and what it does then is not recorded. One that stood still may even have
    claimed the run anew while an answer that it had waited for before was still on its way."""
    newest, holder = 0, line.process
    for op in ledger.log.ops:
        if op.begun > line.begun:
            continue
        token = _granted(op.value, op.result, line.run_id)
        if token > newest:
            newest, holder = token, op.client
        if line.process in ledger.zombies and _starts_anew(op.value, op.result, line):
            return True
    return holder != line.process


def _starts_anew(value: object, result: object, line: Execution) -> bool:
    """Whether a call has recorded a later attempt of the same step."""
    if not isinstance(value, Commit) or not isinstance(result, Committed):
        return False
    return any(
        event.step_name == line.key
        and isinstance(payload := payload_of(event), StepStarted)
        and payload.attempt > line.attempt
        for event in (value.events if value.run_id == line.run_id else ())
    )


def _granted(value: object, result: object, run_id: str) -> int:
    """The token of the claim on a run that a call has given, or 0."""
    if isinstance(result, Claim) and result.run_id == run_id:
        return result.token
    if isinstance(value, Commit) and isinstance(result, Committed) and value.hold is not None:
        return result.token if value.run_id == run_id else 0
    return 0


def _unrecorded(final: Dump, executions: list[Execution]) -> list[str]:
    """A body runs only once its start is durable, and once for each start."""
    found = []
    seen: set[tuple[str, str, str, int]] = set()
    for line in executions:
        dumped = final.runs.get(line.run_id)
        if dumped is None or dumped.run.uid != line.uid or line.key.endswith("]"):
            continue  # another life, or an item of a map: those are recorded in ranges
        name = f"attempt {line.attempt} of step {line.key!r} of {line.run_id!r}"
        one = (line.run_id, line.uid, line.key, line.attempt)
        if one in seen:
            found.append(f"{name} ran twice")
        seen.add(one)
        starts = {
            payload.attempt
            for event in dumped.events
            if event.step_name == line.key and isinstance(payload := payload_of(event), StepStarted)
        }
        if line.attempt not in starts:
            found.append(f"{name} ran, and its start was never recorded")
    return found
