"""What maps promise: I19."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from outlast.model.payloads import MapCompleted, MapProgress, MapStarted
from outlast.testkit.checker.evidence import Case, Violation, position


def maps_are_complete_and_in_order(case: Case) -> Iterator[Violation]:
    """I19: each item has one outcome, and the results stand in the order of the items."""
    for id in case.final.runs:
        counts: dict[str, int] = {}
        results: dict[str, dict[int, Raw | None]] = {}
        for event, payload in case.typed_events(id):
            key = event.step_name
            match payload:
                case MapStarted(item_count=count):
                    counts[key], results[key] = count, {}
                case MapProgress():
                    known = results.setdefault(key, {})
                    done = dict(zip(payload.completed, payload.results, strict=False))
                    outcomes = [*payload.completed, *(index for index, _ in payload.failed)]
                    for index in outcomes:
                        if index in known:
                            message = f"item {index} of {key!r} has two outcomes"
                            yield Violation("I19", id, message)
                        if not 0 <= index < counts.get(key, 0):
                            yield Violation("I19", id, f"{key!r} has no item {index}")
                        known[index] = done.get(index)
                case MapCompleted(results=recorded):
                    wanted = [results.get(key, {}).get(n) for n in range(counts.get(key, 0))]
                    if not _agree(recorded, wanted):
                        message = f"{position(event)}: the results of {key!r} are not its items'"
                        yield Violation("I19", id, message)


def _agree(recorded: Raw, wanted: list[Raw | None]) -> bool:
    found: object = msgspec.json.decode(recorded)
    if isinstance(found, dict):
        return True  # in facts, which are checked by their hashes
    return found == [None if one is None else msgspec.json.decode(one) for one in wanted]
