"""The ledger: which bodies of steps ran, in which process, and when. Kept outside the store, so
that the two can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from outlast.engine.steps.step_executor import StepContext
from outlast.testkit.checker import Effect, Log


class Execution(Struct, kw_only=True):
    """One time that a body ran. `ended` is None if its process died meanwhile."""

    process: str
    run_id: str
    uid: str
    key: str
    attempt: int
    begun: int
    ended: int | None = None

    def effect(self, *, stale: bool = False) -> Effect:
        """The line as the checker reads it."""
        return Effect(
            run_id=self.run_id,
            step=self.key,
            begun=self.begun,
            ended=self.ended,
            attempt=self.attempt,
            uid=self.uid,
            stale=stale,
        )


class Ledger:
    """All executions, in ticks of the clock that `log`, what the processes asked of the store,
    is written in."""

    def __init__(self) -> None:
        self.log = Log()
        self.executions: list[Execution] = []
        self.zombies: set[str] = set()
        """Processes that stood still for a while, and may not know what happened meanwhile."""

    @contextmanager
    def body(self, process: str, context: StepContext) -> Iterator[None]:
        """Around a body: a line that it runs. An error is an end too."""
        line = Execution(
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

    def repeated(self) -> dict[tuple[str, str], list[Execution]]:
        """What ran more than once, by run and key."""
        found: dict[tuple[str, str], list[Execution]] = {}
        for line in self.executions:
            found.setdefault((line.run_id, line.key), []).append(line)
        return {key: lines for key, lines in found.items() if len(lines) > 1}

    def hanging(self) -> str:
        """What to say of bodies that do not end."""
        open = [f"{line.key!r} of {line.run_id!r}" for line in self.executions if not line.ended]
        return f"these steps do not end, and nothing else happens: {', '.join(open)}"
