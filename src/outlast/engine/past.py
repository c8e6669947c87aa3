"""Past: what a replay needs to know of history before it gets there.

Most of history is met event by event. But a choice is asked for and used in the same breath, and
the inside of a finished scope or of a finished loop iteration is not run again: so these are looked
up ahead, by key. Where something inside may have to be undone later, it is run again all the same,
because only the code knows how: a scope as a whole, a loop from the iteration before it on. What was
skipped once is skipped for ever, because a snapshot no longer has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlast.model.event import Event, EventType
from outlast.model.event_data import payload_of
from outlast.model.payloads import BranchEvaluated, LoopIterated, ScopeCompleted, ScopeFailed

_CLOSED = {EventType.SCOPE_COMPLETED, EventType.SCOPE_FAILED}


class Past:
    """An index of a history. Empty for a run that has none."""

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self.remaining = len(events)
        self.choices: dict[str, str] = {}
        self.closed_scopes: set[str] = set()
        self.iterations: dict[str, int] = {}
        for event in events:
            if event.type == EventType.BRANCH_EVALUATED:
                payload = payload_of(event)
                assert isinstance(payload, BranchEvaluated)
                self.choices[event.step_name] = payload.choice
            elif event.type in _CLOSED:
                payload = payload_of(event)
                assert isinstance(payload, ScopeCompleted | ScopeFailed)
                if not payload.undoable:
                    self.closed_scopes.add(event.step_name)
            elif event.type == EventType.LOOP_ITERATED:
                payload = payload_of(event)
                assert isinstance(payload, LoopIterated)
                if not payload.undoable:
                    self.iterations[event.step_name] = payload.iteration

    def advance(self, event: Event) -> None:
        """`event` is being taken in: one less to come."""
        self.remaining -= 1

    def ends_what_is_skipped(self, event: Event) -> bool:
        """Whether `event` is the result of a scope, or of iterations, whose code is not run again."""
        if event.type in _CLOSED:
            return event.step_name in self.closed_scopes
        return event.type == EventType.LOOP_ITERATED and event.step_name in self.iterations

    def skips(self, event: Event) -> bool:
        """Whether `event` is inside something that is finished and not run again."""
        if not self.closed_scopes and not self.iterations:
            return False
        if event.type == EventType.LOOP_ITERATED and event.step_name in self.iterations:
            payload = payload_of(event)
            assert isinstance(payload, LoopIterated)
            if payload.iteration < self.iterations[event.step_name]:
                return True
        inside, _, _ = event.step_name.rpartition("/")
        while inside:
            if inside in self.closed_scopes or self._is_past_iteration(inside):
                return True
            inside, _, _ = inside.rpartition("/")
        return False

    def _is_past_iteration(self, path: str) -> bool:
        loop, _, iteration = path.rpartition("/")
        done = self.iterations.get(loop)
        return done is not None and iteration.isdigit() and int(iteration) < done
