"""What a scenario leaves: `Ending`, the final state of its runs, and `EffectLedger`, the step functions that ran.

`differences` compares two endings and returns the differences as text. The ledger says which step functions
ran, in which process and when. It is outside the store, so that a checker can compare the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from outlast.engine.steps.step_executor import StepContext
from outlast.model.event import Event, EventType, payload_of
from outlast.model.payloads import StepFailedEvent
from outlast.testkit.checker import Effect, Log
from outlast.testkit.dump import Dump, RunDump

if TYPE_CHECKING:
    from outlast.testing.scenario_runner import ScenarioResult

# What a crash may add to a history: attempts, and other batches of map results.
ATTEMPTS = {
    EventType.STEP_STARTED,
    EventType.STEP_PROGRESS,
    EventType.STEP_LOST,
    EventType.MAP_PROGRESS,
    EventType.SNAPSHOT,
}
COUNT = re.compile(r"after \d+ attempts?")  # in the text of `StepFailed`


class RunEnding(Struct, frozen=True, kw_only=True):
    """How one run ended. `history` is without attempts."""

    workflow: str
    status: str
    result: str
    error: str
    published: dict[str, str]
    attributes: dict[str, object]
    unread: list[str]
    history: list[tuple[str, str]]


class Ending(Struct, frozen=True, kw_only=True):
    """How a scenario ended: its runs by id, the value of `observe`, and which actions
    were refused."""

    runs: dict[str, RunEnding]
    observed: Any = None
    refused: list[str] = []

    @classmethod
    def of(cls, final: Dump, *, observed: object, failed_actions: Sequence[str]) -> Ending:
        """The ending in a dump."""
        runs = {id: _run_ending(dumped) for id, dumped in final.runs.items()}
        return cls(runs=runs, observed=observed, refused=list(failed_actions))


def shape(history: Sequence[Event]) -> list[tuple[str, str]]:
    """A history without attempts, as (type, key)."""
    return [(str(event.type), event.step_name) for event in history if not _is_attempt(event)]


def unstable(one: Ending, other: Ending) -> set[str]:
    """The names of what differs between two endings without a crash."""
    return {name for name, _ in changes(one, other, strict=False)}


def differences(
    plain: ScenarioResult, crashed: ScenarioResult, *, ignore: set[str], strict: bool
) -> list[str]:
    """What a crash changed, as text."""
    found = list(crashed.violations)
    changed = changes(plain.ending, crashed.ending, strict=strict)
    found += [text for name, text in changed if name not in ignore]
    if found:
        found += _suspects(plain, crashed)
    return found


def _run_ending(dumped: RunDump) -> RunEnding:
    run = dumped.run
    return RunEnding(
        workflow=run.workflow,
        status=run.status.value,
        result=_text(run.result),
        error=COUNT.sub("after some attempts", run.error or ""),
        published={name: _text(value) for name, value in run.ctx.items()},
        attributes=dict(run.attributes),
        unread=[f"{item.kind} {item.name}" for item in dumped.inbox],
        history=shape(dumped.events),
    )


def _is_attempt(event: Event) -> bool:
    if event.type == EventType.STEP_FAILED:
        payload = payload_of(event)
        return isinstance(payload, StepFailedEvent) and payload.will_retry
    return event.type in ATTEMPTS


def changes(plain: Ending, other: Ending, *, strict: bool) -> Iterator[tuple[str, str]]:
    """The name and the text of each difference."""
    for id in sorted(plain.runs.keys() | other.runs.keys()):
        before, after = plain.runs.get(id), other.runs.get(id)
        if before is None or after is None:
            what = "exists only after the crash" if before is None else "is missing"
            yield f"{id}", f"run {id!r} {what}"
        else:
            yield from _run_changes(id, before, after, strict=strict)
    if plain.observed != other.observed:
        yield "observed", f"observed: {plain.observed!r} became {other.observed!r}"
    if plain.refused != other.refused:
        yield "refused", f"refused actions: {plain.refused!r} became {other.refused!r}"


def _run_changes(
    id: str, before: RunEnding, after: RunEnding, *, strict: bool
) -> Iterator[tuple[str, str]]:
    for name in ("status", "result", "error", "published", "attributes", "unread"):
        one, two = getattr(before, name), getattr(after, name)
        if one != two:
            yield f"{id}.{name}", f"{name} of {id!r}: {one!r} became {two!r}"
    if strict and before.history != after.history:
        yield f"{id}.history", _first_difference(id, before.history, after.history)
        return
    one, two = _by_key(before.history), _by_key(after.history)
    for key in sorted(one.keys() | two.keys()):
        if one.get(key) != two.get(key):
            was, now = (", ".join(side.get(key, ["nothing"])) for side in (one, two))
            name = f"{key!r}" if key else "the run itself"
            yield f"{id}.history.{key}", f"history of {id!r}, {name}: {was} became {now}"


def _by_key(history: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for type, key in history:
        found.setdefault(key, []).append(type)
    return found


def _first_difference(
    id: str, one: Sequence[tuple[str, str]], two: Sequence[tuple[str, str]]
) -> str:
    index = next(
        (index for index, (a, b) in enumerate(zip(one, two, strict=False)) if a != b),
        min(len(one), len(two)),
    )
    was, now = (
        " ".join(side[index]).strip() if index < len(side) else "nothing more"
        for side in (one, two)
    )
    return f"history of {id!r} differs at its event {index + 1}: {was} became {now}"


def _suspects(plain: ScenarioResult, crashed: ScenarioResult) -> list[str]:
    """The steps that ran more often than without a crash."""
    found = []
    for (run_id, key), lines in crashed.repeated.items():
        often = len(plain.repeated.get((run_id, key), [None]))
        if len(lines) > often:
            found.append(
                f"step {key!r} of {run_id!r} ran {len(lines)} times, not {often}: the crash came "
                "before its result was recorded. If this explains the difference, make the step "
                "idempotent: pass outlast.step_info().idempotency_key to the service it calls"
            )
    return found


def _text(value: Raw | None) -> str:
    return "" if value is None else bytes(value).decode()


class StepExecution(Struct, kw_only=True):
    """One call of a step function. `ended` is None if its process crashed during the call."""

    process: str
    run_id: str
    uid: str
    key: str
    attempt: int
    begun: int
    ended: int | None = None

    def effect(self, *, stale: bool = False) -> Effect:
        """The execution in the form that the checker reads."""
        return Effect(
            run_id=self.run_id,
            step=self.key,
            begun=self.begun,
            ended=self.ended,
            attempt=self.attempt,
            uid=self.uid,
            stale=stale,
        )


class EffectLedger:
    """All step executions. Their times are ticks of `log`, which records the store calls."""

    def __init__(self) -> None:
        self.log = Log()
        self.executions: list[StepExecution] = []
        self.zombies: set[str] = set()
        """Processes that were suspended past their lease."""

    @contextmanager
    def body(self, process: str, context: StepContext) -> Iterator[None]:
        """Record the execution of a step function in this block. An error counts as an end."""
        line = StepExecution(
            process=process,
            run_id=context.run_id,
            uid=context.uid,
            key=context.key,
            attempt=context.attempt,
            begun=self.log.tick(),
        )
        self.executions.append(line)
        try:
            yield
        finally:
            line.ended = self.log.tick()

    def repeated(self) -> dict[tuple[str, str], list[StepExecution]]:
        """The steps that were executed more than once, by run and key."""
        found: dict[tuple[str, str], list[StepExecution]] = {}
        for line in self.executions:
            found.setdefault((line.run_id, line.key), []).append(line)
        return {key: lines for key, lines in found.items() if len(lines) > 1}

    def hanging(self) -> str:
        """The message for step functions that do not return."""
        open = [f"{line.key!r} of {line.run_id!r}" for line in self.executions if not line.ended]
        return f"these steps do not return, and nothing else is in flight: {', '.join(open)}"
