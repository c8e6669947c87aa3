"""Interruptions: steps that were under way when their process ended, and what becomes of them.

An attempt is counted before it runs. If the process dies, whoever claims the run next sees an
attempt that has begun and never ended, and tries again; after `MAX_INTERRUPTIONS` the step itself
counts as the cause, and fails. But everything that ran beside it died as often. So from the second
death on, a step is a *suspect*: suspects begin one after the other, each with a quiet time for
itself, and its next attempt is counted when its turn has come. The one that kills the process then
dies alone, and the others end as they should.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from outlast.engine.bell import Bell
from outlast.engine.execution import Execution
from outlast.engine.operations.child import ChildRun
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.remote import RemoteStep
from outlast.engine.operations.step import StepCall
from outlast.model.run import Run, Status
from outlast.ports.clock import Clock

QUIET_SECONDS = 10.0
"""How long a suspect that is still running keeps the others waiting."""

Suspect = StepCall | MapCall


def count_interruptions(execution: Execution, run: Run, now: datetime) -> list[Suspect]:
    """Count what was under way when the last owner died, and try it again or give it up; those
    that have to wait for their turn first. A run that was paused had nothing under way, one that
    was handed back has that on record, and what a run is retried from begins anew."""
    suspects: list[Suspect] = []
    for operation in list(execution.open.values()):
        if operation in execution.launches or not operation.is_inherited:
            continue  # asked for just now: nobody has begun with it
        if execution.open.get(operation.key) is not operation:
            continue  # given up by the code, because another one was
        key = operation.key
        if isinstance(operation, ChildRun):
            execution.launches.append(operation)
        elif not isinstance(operation, StepCall | MapCall) or operation.due is not None:
            continue
        elif isinstance(operation, RemoteStep):
            if run.status is Status.PENDING:  # begun anew: its task belongs to another life
                execution.deliver(operation.next_attempt(), now, key=key)
        elif run.status is Status.PAUSED:
            execution.launches.append(operation)
        elif (run.status is Status.PENDING and key == run.recover_to) or (
            run.status is Status.WAITING and isinstance(operation, MapCall)
        ):
            execution.deliver(operation.next_attempt(), now, key=key)
        elif operation.is_suspect:
            suspects.append(operation)
        else:
            execution.deliver(operation.after_interruption(), now, key=key)
    return suspects


class Solitude:
    """Where suspects wait for their turn. One per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()

    async def alone(self, begin: Callable[[], asyncio.Event]) -> None:
        """Call `begin` when no other suspect is in its quiet time. What it returns is set when
        the suspect has ended."""
        async with self._turn:
            ended = asyncio.ensure_future(begin().wait())
            quiet = asyncio.ensure_future(self._clock.sleep(QUIET_SECONDS))
            try:
                await asyncio.wait((ended, quiet), return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
                quiet.cancel()


class Suspects:
    """The suspects of one run: those that wait, and those whose turn it is."""

    def __init__(self, solitude: Solitude, arrived: Bell) -> None:
        self._solitude = solitude
        self._arrived = arrived
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[str] = set()
        self._turns: list[Suspect] = []
        self._ended: dict[str, asyncio.Event] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    @property
    def idle(self) -> bool:
        """Whether none of them waits, has the quiet time for itself, or has yet to begin: a run that
        waits for its store may come to look when that time is over."""
        return not (self._tasks or self._turns)

    def wait(self, suspects: Iterable[Suspect]) -> None:
        """Let these wait for their turn."""
        for suspect in suspects:
            self._waiting.add(suspect.key)
            task = asyncio.create_task(self._solitude.alone(partial(self._begin, suspect)))
            self._tasks.add(task)
            task.add_done_callback(self._over)

    def whose_turn(self) -> list[Suspect]:
        """Those who may begin now."""
        turns, self._turns = self._turns, []
        self._waiting.difference_update(suspect.key for suspect in turns)
        return turns

    def ended(self, key: str) -> None:
        """What has this key has ended: if it was a suspect, the next one may begin."""
        event = self._ended.pop(key, None)
        if event is not None:
            event.set()

    def stop(self) -> None:
        """Nobody waits any more."""
        for task in self._tasks:
            task.cancel()

    def _begin(self, suspect: Suspect) -> asyncio.Event:
        self._turns.append(suspect)
        self._arrived.ring()
        return self._ended.setdefault(suspect.key, asyncio.Event())

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._arrived.ring()
