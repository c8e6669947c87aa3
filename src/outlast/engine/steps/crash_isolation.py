"""Interruptions: steps that were under way when their process ended, and what becomes of them.

An attempt is counted before it runs. If the process dies, whoever claims the run next sees an
attempt that has begun and never ended, and tries again; after `MAX_INTERRUPTIONS` the step itself
counts as the cause, and fails. But everything that ran beside it died as often. So from the second
death on, a step is a *suspect*. Suspects begin in groups of 1, 2, 4 … each as soon as the group before
has ended or has survived a quiet time, so that many begin within seconds. Only a step that dies *alone*
is taken for the cause. What dies in a group begins again first, and in a group half as large; what
has survived is forgiven that death (``step.lost`` with `survived`). With each death the quiet time grows, so that
a step which kills its process late is found, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime

from outlast.engine.definitions.retry import SUSPECT_AFTER
from outlast.engine.operations.child import ChildRun
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.queued_step import QueuedStepCall
from outlast.engine.operations.step import StepCall
from outlast.engine.replay.execution import Execution
from outlast.engine.steps.wake_event import WakeEvent
from outlast.model.payloads import StepLost
from outlast.model.run import Run, Status
from outlast.ports.clock import Clock

QUIET_SECONDS = 1.0
MAX_QUIET_SECONDS = 60.0
"""How long a group of suspects keeps the others waiting, at first and at most."""
MIN_LARGEST = 8
GROUPS = 8
"""Groups grow to an eighth of all suspects, or to this many."""

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
        elif isinstance(operation, QueuedStepCall):
            if run.status is Status.PENDING:  # begun anew: its task belongs to another life
                execution.deliver(operation.next_attempt(), now, key=key)
        elif run.status is Status.PAUSED:
            execution.launches.append(operation)
        elif run.status is Status.PENDING and (
            key == run.recover_to
            or (isinstance(operation, StepCall) and not operation.step.at_most_once)
        ):
            # The attempt on record stands for the call, in a retry or a fork: nothing died of it.
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
    """A suspect that waits for its turn, or has it."""

    def __init__(self, suspects: Suspects, suspect: Suspect) -> None:
        self.suspects = suspects
        self.suspect = suspect
        self.ended = asyncio.Event()
        self.alone = self.has_survived = False

    @property
    def deaths(self) -> int:
        """How often it was cut off, forgiven or not."""
        return self.suspect.interruptions + len(self.suspect.lost)


class CrashIsolation:
    """Begins suspects in groups. One per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[SuspectTurn] = []
        self._running: list[SuspectTurn] = []
        self._beginning: asyncio.Task[None] | None = None

    def add(self, turn: SuspectTurn) -> None:
        """Let a suspect wait for its turn."""
        self._waiting.append(turn)
        if self._beginning is None or self._beginning.done():
            self._beginning = asyncio.create_task(self._begin_groups())

    def remove(self, turn: SuspectTurn) -> None:
        """It has ended, or waits no more."""
        turn.ended.set()
        for turns in (self._waiting, self._running):
            if turn in turns:
                turns.remove(turn)

    async def _begin_groups(self) -> None:
        await asyncio.sleep(0)  # all suspects of a run come together
        size = 1
        while self._waiting:
            for turn in self._running:
                turn.suspects.survive(turn)  # what dies from now on may have died of others
            group = self._next_group(size)
            alone = len(group) == 1 and not self._running
            quiet = QUIET_SECONDS * 2 ** max(max(turn.deaths for turn in group) - 2, 0)
            for turn in group:
                turn.alone = alone
                self._running.append(turn)
                turn.suspects.begin(turn)
            await self._wait_for(group, min(quiet, MAX_QUIET_SECONDS))
            size *= 2

    def _next_group(self, size: int) -> list[SuspectTurn]:
        """Those that died most often first; each death in a group halves the next one."""
        largest = max(MIN_LARGEST, (len(self._waiting) + len(self._running)) // GROUPS)
        self._waiting.sort(key=lambda turn: -turn.suspect.interruptions)
        # One that was forgiven a death while it waited has fewer than a suspect.
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
    """The suspects of one run: those that wait, and those whose turn it is."""

    def __init__(self, isolation: CrashIsolation, arrived: WakeEvent) -> None:
        self._isolation = isolation
        self._arrived = arrived
        self._waiting: dict[str, SuspectTurn] = {}
        self._begun: dict[str, SuspectTurn] = {}
        self._turns: list[SuspectTurn] = []
        self._survivors: list[SuspectTurn] = []

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    @property
    def idle(self) -> bool:
        """Whether none of them waits, has yet to begin, or has survived what is not recorded yet."""
        return not (self._waiting or self._turns or self._survivors)

    def wait(self, suspects: Iterable[Suspect]) -> None:
        """Let these wait for their turn."""
        for suspect in suspects:
            turn = self._waiting[suspect.key] = SuspectTurn(self, suspect)
            self._isolation.add(turn)

    def whose_turn(self) -> list[SuspectTurn]:
        """Those who may begin now."""
        turns, self._turns = self._turns, []
        for turn in turns:
            self._waiting.pop(turn.suspect.key, None)
        return turns

    def survivors(self) -> list[Suspect]:
        """Those whose process lives on after their quiet time, and that run on beside others."""
        turns, self._survivors = self._survivors, []
        return [turn.suspect for turn in turns if turn.suspect.key in self._begun]

    def ended(self, key: str) -> None:
        """What has this key has ended: if it was a suspect, the next ones may begin."""
        turn = self._begun.pop(key, None)
        if turn is not None:
            self._isolation.remove(turn)

    def stop(self) -> None:
        """None waits any more."""
        for turn in (*self._waiting.values(), *self._begun.values()):
            self._isolation.remove(turn)

    def begin(self, turn: SuspectTurn) -> None:
        """Its turn has come."""
        self._begun[turn.suspect.key] = turn
        self._turns.append(turn)
        self._arrived.set()

    def survive(self, turn: SuspectTurn) -> None:
        """Its quiet time is over, and others begin beside it."""
        if not turn.has_survived and turn not in self._turns:
            turn.has_survived = True
            self._survivors.append(turn)
            self._arrived.set()
