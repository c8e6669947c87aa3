"""The verdict on a round: a pure function from what was written down to broken promises.

What `tests.campaigns.engine_kills.verdict` and the checkers of `outlast.testing` say, and, as there were several
workers:

- a step that is to run at most once was begun at most once;
- two workers were at the same step at the same time only if the first of them had been kept from
  knowing that it is no longer its own: it was stopped, starved, gripped or cut off. It is fenced then;
- what an update was answered is right, and each update was done once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from outlast.model import Commit, Committed, Status
from outlast.model.claim import Claim
from outlast.testing.scenario_result import EffectLedger, StepExecution
from outlast.testkit import checker
from outlast.testkit.checker.engine import check_engine
from outlast.testkit.run_checks import LeaseLosses
from tests.campaigns.chaos.ledgers import Fault
from tests.campaigns.chaos.round import Left
from tests.campaigns.chaos.workflows import FAR, GRIPPING, LEASE, ONCE, name_of
from tests.campaigns.engine_kills import verdict
from tests.campaigns.engine_kills.killing import Evidence
from tests.campaigns.engine_kills.ledgers import Effect
from tests.campaigns.engine_kills.workflows import kind_of

SECOND = 10**9
AFTER = int((2 * LEASE + 2) * SECOND)
"""How long after a fault a worker may not know yet what it has lost."""


def judge(left: Left) -> list[str]:
    """Every promise that was not kept, in sentences."""
    evidence = left.evidence
    found = [*left.problems]
    found += [f"integrity: {line}" for line in evidence.integrity if line != "ok"]
    found += verdict.starts_and_results(evidence)
    # The attempt of a step in a queue is made again under the same number by whoever has the task.
    local = [one for one in evidence.effects if name_of(one.key) not in FAR]
    found += verdict.bodies_after_their_start(evidence._replace(effects=local))
    found += verdict.attempts(evidence)
    found += verdict.signals(evidence)
    found += updates(evidence)
    found += at_most_once(evidence)
    deaths = _deaths(left.faults)
    excuses = Excuses([*left.faults, *last_grips(evidence.effects, deaths)])
    found += two_at_once(evidence, excuses, deaths)
    ran = bodies(left, excuses)
    stale = {_name(one) for one, effect in ran if effect.stale}
    fresh = [one for one in evidence.effects if _name_of(one) not in stale]
    found += verdict.compensations(evidence._replace(effects=fresh))
    promises = checker.Evidence(
        dumps=[evidence.final],
        ops=left.ops,
        effects=[effect for _, effect in ran],
        complete=False,
        settled=not left.problems,
    )
    return [*found, *map(str, (*checker.check(promises), *check_engine(promises)))]


def bodies(left: Left, excuses: Excuses) -> list[tuple[StepExecution, checker.Effect]]:
    """Each body that began, and how the checkers are told of it: one is stale if it was begun by a
    process that had lost its run, or its task, and did not know it yet."""
    ledger = EffectLedger()
    ledger.log.ops = left.ops
    ledger.executions = executions(left.evidence.effects)
    ledger.zombies = {str(fault.life) for fault in left.faults if fault.life is not None}
    lost, recorded = LeaseLosses(ledger), _recorded(left.ops)
    found = []
    for line in ledger.executions:
        # When exactly a run was lost nobody knows; it matters only for what was recorded before.
        too_late = line.begun > recorded.get((line.run_id, line.key), line.begun)
        if name_of(line.key) in FAR:
            # Whoever does a task need not have the run, and who comes next makes the same attempt.
            stale = too_late and excuses.cover(int(line.process), line.begun)
            effect = msgspec.structs.replace(line.effect(stale=stale), attempt=0)
        else:
            effect = line.effect(stale=too_late and lost.before(line))
        found.append((line, effect))
    return found


def _name(one: StepExecution) -> tuple[object, ...]:
    return one.run_id, one.uid, one.key, one.attempt, one.process


def _name_of(one: Effect) -> tuple[object, ...]:
    return one.run_id, one.uid, one.key, one.attempt, str(one.life)


def _recorded(ops: Iterable[checker.Op]) -> dict[tuple[str, str], int]:
    """When it was known of a step, or of an item, that it is completed."""
    found: dict[tuple[str, str], int] = {}
    for op in ops:
        if isinstance(op.value, Commit) and isinstance(op.result, Committed):
            for event in op.value.events:
                for key in verdict.records(event):
                    found.setdefault((event.run_id, key), op.ended)
    return found


def executions(effects: Iterable[Effect]) -> list[StepExecution]:
    """Each body that began, with the time when it ended, if it came to its end."""
    found: list[StepExecution] = []
    open: dict[tuple[object, ...], StepExecution] = {}
    for one in effects:
        key = (one.run_id, one.uid, one.key, one.attempt, one.life)
        if one.what == "begun":
            open[key] = StepExecution(
                process=str(one.life),
                run_id=one.run_id,
                uid=one.uid,
                key=one.key,
                attempt=one.attempt,
                begun=one.at,
            )
            found.append(open[key])
        elif one.what != "cancelled" and key in open:
            open.pop(key).ended = one.at
    return found


class Excuses:
    """What a worker could not help."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._of: dict[int | None, list[Fault]] = {}
        for fault in faults:
            self._of.setdefault(fault.life, []).append(fault)

    def cover(self, life: int, moment: int) -> bool:
        """Whether a worker may not have known at that moment what it had lost."""
        faults = [*self._of.get(life, ()), *self._of.get(None, ())]
        return any(one.begun <= moment <= one.ended + AFTER for one in faults)


def last_grips(effects: Iterable[Effect], deaths: dict[int, int]) -> Iterator[Fault]:
    """Grips in which a worker was killed: it has not lived to write down that it stood still."""
    open: dict[tuple[object, ...], Effect] = {}
    for one in effects:
        if name_of(one.key) == GRIPPING and one.what == "begun":
            open[_name_of(one)] = one
        else:
            open.pop(_name_of(one), None)
    for one in open.values():
        if one.life in deaths:
            yield Fault("stall", one.life, one.at, deaths[one.life])


def two_at_once(evidence: Evidence, excuses: Excuses, deaths: dict[int, int]) -> Iterator[str]:
    """A step is at work in one process at a time."""
    ran: dict[tuple[str, str, str], list[tuple[int, int, int]]] = {}
    open: dict[tuple[object, ...], Effect] = {}
    for one in evidence.effects:
        if one.what == "begun":
            open[_name_of(one)] = one
        elif (begun := open.pop(_name_of(one), None)) is not None:
            ran.setdefault(_step_of(one), []).append((begun.at, one.at, one.life))
    for one in open.values():
        ended = max(one.at, deaths.get(one.life, one.at))
        ran.setdefault(_step_of(one), []).append((one.at, ended, one.life))
    for (run_id, _, key), found in ran.items():
        for (_, ended, life), (start, _, other) in pairwise(sorted(found)):
            if start < ended and not excuses.cover(life, start):
                yield (
                    f"{run_id}: {key!r} was begun by worker {other} while {life} was at it, for "
                    f"another {(ended - start) / SECOND:.3f} s, and could have known"
                )


def _step_of(one: Effect) -> tuple[str, str, str]:
    return one.run_id, one.uid, one.key


def _deaths(faults: Iterable[Fault]) -> dict[int, int]:
    return {one.life: one.ended for one in faults if one.what == "killed" and one.life is not None}


def at_most_once(evidence: Evidence) -> Iterator[str]:
    """What must not be repeated is not."""
    begun = Counter(
        (one.run_id, one.uid, one.key)
        for one in evidence.effects
        if one.what == "begun" and name_of(one.key) in ONCE
    )
    for (run_id, _, key), count in begun.items():
        if count > 1:
            yield f"{run_id}: {key!r} is to run at most once and was begun {count} times"


def updates(evidence: Evidence) -> Iterator[str]:
    """Each was done once, in order, and answered with the sum so far. One whose step was given up is
    answered with that, and adds nothing."""
    sums: dict[str, int] = {}
    for line in evidence.told:
        if line.what == "answered":
            _, number = kind_of(line.run_id, evidence.kinds)
            right = sums[line.run_id] = sums.get(line.run_id, number) + line.number
            if line.value != right:
                yield f"{line.run_id}: update {line.number} was answered {line.value!r}, not {right}"
        elif line.what == "unanswered" and verdict.GIVEN_UP[0] not in str(line.value):
            yield f"{line.run_id}: update {line.number} failed: {line.value}"


def takeovers(left: Left) -> list[float]:
    """How many seconds after a `kill -9` the runs that the worker held were claimed by others. Those
    for which the store itself was away meanwhile are left out: everybody waited for that."""
    claims: dict[str, list[tuple[int, str]]] = {}
    given_back: dict[tuple[str, str], int] = {}
    for op in left.ops:
        if isinstance(op.result, Claim) and op.result.task_id is None:
            claims.setdefault(op.result.run_id, []).append((op.ended, op.client))
        elif isinstance(op.value, Commit) and (op.value.release or _ends(op.value)):
            given_back[op.value.run_id, op.client] = op.ended
    found: list[float] = []
    for life, death in _deaths(left.faults).items():
        for run_id, taken in claims.items():
            before = [one for one in taken if one[0] <= death]
            after = [at for at, _ in taken if at > death]
            if before and after and before[-1][1] == str(life):
                was_held = given_back.get((run_id, str(life)), 0) < before[-1][0]
                if was_held and not _away(left.faults, death, after[0]):
                    found.append((after[0] - death) / SECOND)
    return sorted(found)


def _ends(commit: Commit) -> bool:
    return (
        commit.change is not None
        and isinstance(commit.change.status, Status)
        and (commit.change.status.terminal)
    )


def _away(faults: list[Fault], death: int, taken: int) -> bool:
    """Whether the store was away between two moments."""
    return any(one.begun <= taken and death <= one.ended for one in faults if one.life is None)
