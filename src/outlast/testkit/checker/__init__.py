"""The history checker: a pure function from evidence to broken promises.

::

    log = Log()
    store = RecordingStore(FaultyStore(inner, plan), log, "client 1")
    ...
    assert check(Evidence(ops=log.ops, dumps=[await dump(inner)])) == []

It knows nothing of how a store works, only what it promises: each function below is one invariant,
under its number, stated in the first line of its docstring. What it cannot decide from the evidence it lets pass, so
a violation is always one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outlast.testkit.checker.claims import (
    one_committer_per_token,
    one_start_per_life,
    tokens_only_grow,
)
from outlast.testkit.checker.evidence import (
    Case,
    Effect,
    Evidence,
    Fate,
    Op,
    Violation,
)
from outlast.testkit.checker.histories import (
    gapless,
    immutable_prefix,
    no_acked_loss,
    no_phantoms,
    one_completion_per_step,
    terminal_is_final,
)
from outlast.testkit.checker.messages import signals_once
from outlast.testkit.checker.recording import Log, RecordingStore
from outlast.testkit.checker.records import all_or_nothing, deleted_is_gone, record_is_the_fold
from outlast.testkit.checker.steps import at_least_once, never_again_once_recorded
from outlast.testkit.dump import Dump, dump

__all__ = [
    "INVARIANTS",
    "Dump",
    "Effect",
    "Evidence",
    "Fate",
    "Log",
    "Op",
    "RecordingStore",
    "Violation",
    "check",
    "dump",
]

INVARIANTS: dict[str, Callable[[Case], Iterator[Violation]]] = {
    "I1": gapless,
    "I2": immutable_prefix,
    "I3": no_acked_loss,
    "I4": no_phantoms,
    "I5": one_committer_per_token,
    "I6": tokens_only_grow,
    "I7": one_completion_per_step,
    "I8": never_again_once_recorded,
    "I9": at_least_once,
    "I11": one_start_per_life,
    "I12": all_or_nothing,
    "I13": record_is_the_fold,
    "I16": signals_once,
    "I18": terminal_is_final,
    "I25": deleted_is_gone,
}


def check(evidence: Evidence) -> list[Violation]:
    """Every promise that the evidence shows to be broken."""
    case = Case(evidence)
    return [violation for invariant in INVARIANTS.values() for violation in invariant(case)]
