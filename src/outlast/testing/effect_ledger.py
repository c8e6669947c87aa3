"""EffectLedger: which step functions ran, in which process and when. It is kept outside the store, so
that a checker can compare the two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from outlast.engine.steps.step_executor import StepContext
from outlast.testkit.checker import Effect, Log


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
