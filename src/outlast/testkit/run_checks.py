"""Runs the checkers on the final state of a store, an effect ledger and a log of store calls."""

from __future__ import annotations

from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed
from outlast.model.event import payload_of
from outlast.model.payloads import StepStarted
from outlast.testing.scenario_result import EffectLedger, StepExecution
from outlast.testkit.checker import Evidence, check
from outlast.testkit.checker.engine import check_engine
from outlast.testkit.dump import Dump


def violations(final: Dump, ledger: EffectLedger, *, settled: bool = True) -> list[str]:
    """Every broken promise, as text. `settled`: nothing is in flight and nothing is due."""
    lost = LeaseLosses(ledger)
    effects = [line.effect(stale=lost.before(line)) for line in ledger.executions]
    evidence = Evidence(dumps=[final], ops=ledger.log.ops, effects=effects, settled=settled)
    return [str(violation) for violation in (*check(evidence), *check_engine(evidence))]


class LeaseLosses:
    """Which process lost which run, and when."""

    def __init__(self, ledger: EffectLedger) -> None:
        self._zombies = ledger.zombies
        self._claims: dict[str, list[tuple[int, int, str]]] = {}
        self._starts: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for op in ledger.log.ops:
            run_id, token = _granted(op.value, op.result)
            if token:
                self._claims.setdefault(run_id, []).append((op.begun, token, op.client))
            if isinstance(op.value, Commit) and isinstance(op.result, Committed):
                for event in op.value.events if self._zombies else ():
                    if isinstance(payload := payload_of(event), StepStarted):
                        key = (op.value.run_id, event.step_name)
                        self._starts.setdefault(key, []).append((op.begun, payload.attempt))

    def before(self, line: StepExecution) -> bool:
        """Whether another process had taken over the run when this step started. A process that lost
        its lease may not know it yet, and its result is refused. A zombie may even have claimed the run
        again while the answer to an earlier call was still in flight."""
        if line.process in self._zombies:
            starts = self._starts.get((line.run_id, line.key), ())
            if any(begun <= line.begun and attempt > line.attempt for begun, attempt in starts):
                return True
        newest, holder = 0, line.process
        for begun, token, client in self._claims.get(line.run_id, ()):
            if begun <= line.begun and token > newest:
                newest, holder = token, client
        return holder != line.process


def _granted(value: object, result: object) -> tuple[str, int]:
    """The run and the token of a claim that a call has granted, or 0."""
    if isinstance(result, Claim):
        return result.run_id, result.token
    if isinstance(value, Commit) and isinstance(result, Committed) and value.hold is not None:
        return value.run_id, result.token
    return "", 0
