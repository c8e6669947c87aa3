"""Crash isolation: finds the step that crashes its process, without punishing the steps that ran beside it.

An attempt is counted before it runs. If the process crashes, the next owner of the run finds an attempt that started
and never ended, and tries again; after `MAX_INTERRUPTIONS` the step counts as the cause and fails. But every step that
ran beside it was interrupted as often. So from the second interruption on, a step is a *suspect*. Suspects start in
groups of 1, 2, 4 … as soon as the group before has ended or has survived a quiet time, so that many start within
seconds. Only a step that was interrupted while it ran *alone* is the cause. Suspects that were interrupted in a group
start first next time, in a group half as large; a suspect that survived is forgiven (``step.lost`` with `survived`).
The quiet time grows with each interruption, so that a step which crashes its process late is found, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime

from outlast.engine.definitions.retry import SUSPECT_AFTER
from outlast.engine.operations.child import ChildRun
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.step import QueuedStepCall, StepCall
from outlast.engine.replay.execution import Execution
from outlast.model.payloads import StepLost
from outlast.model.run import Run, Status
from outlast.ports.clock import Clock

QUIET_SECONDS = 1.0
MAX_QUIET_SECONDS = 60.0
"""How long the next group waits for a group of suspects, at first and at most."""
MIN_LARGEST = 8
GROUPS = 8
"""A group has at most an eighth of all suspects, or `MIN_LARGEST`."""

Suspect = StepCall | MapCall


def count_interruptions(execution: Execution, run: Run, now: datetime) -> list[Suspect]:
    """Count the attempts that were in flight when the last owner crashed, and start the next attempts or fail the
    steps; returns the suspects, which have to wait for their turn. A paused run had nothing in flight, one that was
    handed back has recorded it, and the step from which a run is retried starts with no crashes."""
    suspects: list[Suspect] = []
    for operation in list(execution.open.values()):
        if operation in execution.launches or not operation.is_inherited:
            continue  # requested just now: no process has started it
        if execution.open.get(operation.key) is not operation:
            continue  # abandoned by the code, because another operation failed here
        key = operation.key
        if isinstance(operation, ChildRun):
            execution.launches.append(operation)
        elif not isinstance(operation, StepCall | MapCall) or operation.due is not None:
            continue
        elif isinstance(operation, QueuedStepCall):
            if run.status is Status.PENDING:  # a retried run: the task belongs to another life
                execution.deliver(operation.next_attempt(), now, key=key)
        elif run.status is Status.PAUSED:
            execution.launches.append(operation)
        elif run.status is Status.PENDING and (
            key == run.recover_to
            or (isinstance(operation, StepCall) and not operation.step.at_most_once)
        ):
            # In a retried or forked run the recorded attempt only represents the call: it crashed nothing.
            forgiven = StepLost(attempt=operation.attempt, survived=True)
            execution.deliver(forgiven, now, key=key)
            execution.deliver(operation.next_attempt(), now, key=key)
        elif run.status is Status.WAITING and isinstance(operation, MapCall):
            execution.deliver(operation.next_attempt(), now, key=key)
        elif operation.is_suspect:
            suspects.append(operation)
        else:
            execution.deliver(operation.after_interruption(), now, key=key)
    return suspects


class SuspectTurn:
    """A suspect that waits for its turn or has it."""

    def __init__(self, suspects: Suspects, suspect: Suspect) -> None:
        self.suspects = suspects
        self.suspect = suspect
        self.ended = asyncio.Event()
        self.alone = self.has_survived = False

    @property
    def deaths(self) -> int:
        """How often it was interrupted, forgiven or not."""
        return self.suspect.interruptions + len(self.suspect.lost)


class CrashIsolation:
    """Starts suspects in groups. One per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[SuspectTurn] = []
        self._running: list[SuspectTurn] = []
        self._starting: asyncio.Task[None] | None = None

    def add(self, turn: SuspectTurn) -> None:
        """Add a suspect that waits for its turn."""
        self._waiting.append(turn)
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start_groups())

    def remove(self, turn: SuspectTurn) -> None:
        """Remove a suspect that has ended or waits no more."""
        turn.ended.set()
        for turns in (self._waiting, self._running):
            if turn in turns:
                turns.remove(turn)

    async def _start_groups(self) -> None:
        await asyncio.sleep(0)  # all suspects of a run are added together
        size = 1
        while self._waiting:
            for turn in self._running:
                turn.suspects.survive(turn)  # from now on another suspect may crash the process
            group = self._next_group(size)
            alone = len(group) == 1 and not self._running
            quiet = QUIET_SECONDS * 2 ** max(max(turn.deaths for turn in group) - 2, 0)
            for turn in group:
                turn.alone = alone
                self._running.append(turn)
                turn.suspects.start(turn)
            await self._wait_for(group, min(quiet, MAX_QUIET_SECONDS))
            size *= 2

    def _next_group(self, size: int) -> list[SuspectTurn]:
        """The most interrupted suspects first; each interruption in a group halves the next group."""
        largest = max(MIN_LARGEST, (len(self._waiting) + len(self._running)) // GROUPS)
        self._waiting.sort(key=lambda turn: -turn.suspect.interruptions)
        # One that was forgiven while it waited may have fewer interruptions than a suspect.
        deaths = max(self._waiting[0].suspect.interruptions - SUSPECT_AFTER, 0)
        halved = largest >> deaths
        size = max(1, min(size, halved))
        group, self._waiting = self._waiting[:size], self._waiting[size:]
        return group

    async def _wait_for(self, group: list[SuspectTurn], seconds: float) -> None:
        waits = [asyncio.ensure_future(turn.ended.wait()) for turn in group]
        ended = asyncio.ensure_future(asyncio.wait(waits))
        quiet = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((ended, quiet), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in (*waits, ended, quiet):
                wait.cancel()


class Suspects:
    """The suspects of one run: those that wait, and those that have their turn."""

    def __init__(self, isolation: CrashIsolation, wake: Callable[[], None]) -> None:
        self.has_any = False
        """Whether this run ever had a suspect in this process: most runs have none."""
        self._isolation = isolation
        self._wake = wake
        self._waiting: dict[str, SuspectTurn] = {}
        self._started: dict[str, SuspectTurn] = {}
        self._turns: list[SuspectTurn] = []
        self._survivors: list[SuspectTurn] = []

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    @property
    def idle(self) -> bool:
        """Whether no suspect waits, has yet to start, or has survived without that being recorded."""
        return not (self._waiting or self._turns or self._survivors)

    def wait(self, suspects: Iterable[Suspect]) -> None:
        """Add suspects that wait for their turn."""
        for suspect in suspects:
            self.has_any = True
            turn = self._waiting[suspect.key] = SuspectTurn(self, suspect)
            self._isolation.add(turn)

    def take_turns(self) -> list[SuspectTurn]:
        """The suspects that may start now."""
        turns, self._turns = self._turns, []
        for turn in turns:
            self._waiting.pop(turn.suspect.key, None)
        return turns

    def take_survivors(self) -> list[Suspect]:
        """The suspects that survived their quiet time and still run."""
        turns, self._survivors = self._survivors, []
        return [turn.suspect for turn in turns if turn.suspect.key in self._started]

    def ended(self, key: str) -> None:
        """An operation has ended: if it was a suspect, the next group may start."""
        turn = self._started.pop(key, None)
        if turn is not None:
            self._isolation.remove(turn)

    def stop(self) -> None:
        """Remove all suspects of this run."""
        for turn in (*self._waiting.values(), *self._started.values()):
            self._isolation.remove(turn)

    def start(self, turn: SuspectTurn) -> None:
        """Give a suspect its turn."""
        self._started[turn.suspect.key] = turn
        self._turns.append(turn)
        self._wake()

    def survive(self, turn: SuspectTurn) -> None:
        """The quiet time of a suspect is over, and others start beside it."""
        if not turn.has_survived and turn not in self._turns:
            turn.has_survived = True
            self._survivors.append(turn)
            self._wake()
