"""What an engine promises beyond what its store does, as a pure function from evidence.

::

    evidence = Evidence(ops=log.ops, effects=ledger, dumps=[await dump(store)], settled=True)
    assert check(evidence) + check_engine(evidence) == []

It reads histories: a store that is used without an engine may hold events in any order, and is
none of its business. As in `check`, each function is one invariant, and what cannot be decided
passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outlast.testkit.checker.engine.attempts import (
    attempts_are_counted_first,
    commits_name_their_claim,
    items_run_at_least_once,
    no_item_runs_again,
)
from outlast.testkit.checker.engine.children import children_are_told_of
from outlast.testkit.checker.engine.endings import nothing_is_forgotten, record_tells_the_end
from outlast.testkit.checker.engine.maps import maps_are_complete_and_in_order
from outlast.testkit.checker.engine.undoing import undone_in_reverse
from outlast.testkit.checker.engine.waits import nothing_is_early, signals_are_taken_in_order
from outlast.testkit.checker.evidence import Case, Evidence, Violation

__all__ = ["ENGINE_INVARIANTS", "check_engine"]

ENGINE_INVARIANTS: dict[str, Callable[[Case], Iterator[Violation]]] = {
    "I5": commits_name_their_claim,
    "I8": no_item_runs_again,
    "I9": items_run_at_least_once,
    "I10": attempts_are_counted_first,
    "I13": record_tells_the_end,
    "I15": nothing_is_early,
    "I16": signals_are_taken_in_order,
    "I19": maps_are_complete_and_in_order,
    "I20": undone_in_reverse,
    "I21": children_are_told_of,
    "I24": nothing_is_forgotten,
}


def check_engine(evidence: Evidence) -> list[Violation]:
    """Every promise of an engine that the evidence shows to be broken."""
    case = Case(evidence)
    return [violation for rule in ENGINE_INVARIANTS.values() for violation in rule(case)]
