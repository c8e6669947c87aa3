"""The scan of queues with a policy or keys: the ready tasks of each partition, and the state of the scope.

A fair key may have tasks in several queues and partitions: the scan merges them. Its pass is that of the scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from outlast.model.queue_policy import Line, QueuePolicy, decode_policy
from outlast.stores.redis.keys import POLICY, TASKS, unsorted
from outlast.stores.redis.packing import pack
from outlast.stores.redis.session import Call, Server

WIDTH = 21  # of `sortable`


class ScanOptions(NamedTuple):
    """How far to scan: for `room` tasks, so many fair keys of a queue, so many tasks of a key (0: as many as may be
    needed), and whether every priority."""

    room: int
    lines: int
    few: int = 0
    every: bool = False


class QueuePosition(NamedTuple):
    """A ready task and its partition. Sorts by priority, then longest ready."""

    priority: int
    ready: int
    order: int
    name: bytes
    part: int


class FairKeyTasks:
    """The ready tasks of a key in all partitions."""

    def __init__(self) -> None:
        self.places: list[QueuePosition] = []
        self.has_more = False
        self.turns: dict[tuple[int, str], int] = {}
        """The pass that each partition has, per queue."""


class ScopeState(NamedTuple):
    """The policy of a scope, its counts, and the requested fair keys."""

    rules: QueuePolicy | None
    present: int
    in_flight: int
    started: int
    first_start: int | None
    lines: list[Line]
    first_starts: list[int | None]

    @property
    def policy(self) -> QueuePolicy:
        """The policy; without one, a policy without limits."""
        return self.rules or QueuePolicy(queue="")


class View:
    """The merged scans of all partitions."""

    def __init__(self, answers: Sequence[Any], queues: Sequence[str]) -> None:
        self.lines: dict[str, FairKeyTasks] = {"": FairKeyTasks()}
        self.is_ruled = any(is_ruled == b"1" for _, is_ruled, *_ in answers)
        self.returning = [n for n, answer in enumerate(answers) if answer[2] == b"1"]
        """Partitions that have recorded releases of slots."""
        self.has_more_lines = False
        # Queue by queue: the script orders fair keys per queue.
        for n, queue in enumerate(queues):
            for part, answer in enumerate(answers):
                bare, lines, has_more = answer[3][n]
                self.has_more_lines |= has_more == b"1"
                self.lines[""].places += (_place(member, part) for member in bare)
                for key, turn, places, line_has_more in lines:
                    line = self.lines.setdefault(key.decode(), FairKeyTasks())
                    line.places += (_place(member, part) for member in places)
                    line.has_more |= line_has_more == b"1"
                    line.turns[part, queue] = int(turn)

    @property
    def is_plain(self) -> bool:
        """Whether there are only tasks without a key, in queues without a policy."""
        return not self.is_ruled and len(self.lines) == 1


async def scan_queues(
    server: Server, scope: str, queues: Sequence[str], how: ScanOptions, *, timeout: float | None
) -> tuple[View, ScopeState | None]:
    """The ready tasks; with a single partition also the state of the scope."""
    parts = server.layout.partitions
    request: dict[str, Any] = {
        "scope": scope,
        "queues": list(queues),
        "room": how.room,
        "lines": how.lines,
        "every": how.every,
        "is_home": parts == 1,
    }
    if how.few:
        request["few"] = how.few
    names = POLICY if parts == 1 else TASKS
    calls = [Call("scan_fair_queue", part, names, [pack(request)]) for part in range(parts)]
    answers = await server.each(calls, timeout=timeout, writes=False)
    view = View(answers, queues)
    return view, _to_scope_state(answers[0][4], list(view.lines)) if parts == 1 else None


async def read_scope_state(
    server: Server, scope: str, keys: Sequence[str], *, timeout: float | None
) -> ScopeState:
    """The state of a scope and of these keys."""
    request = {"scope": scope, "is_home": True, "asked": list(keys)}
    call = Call("scan_fair_queue", server.layout.part_for(scope), POLICY, [pack(request)])
    answer = await server.call(call, timeout=timeout, writes=False)
    return _to_scope_state(answer[4], keys)


def _to_scope_state(packed: Sequence[Any], keys: Sequence[str]) -> ScopeState:
    rules, present, in_flight, started, first, lines = packed
    return ScopeState(
        rules=decode_policy(rules) if rules else None,
        present=int(present),
        in_flight=int(in_flight),
        started=int(started),
        first_start=int(first) if first else None,
        lines=[
            Line(
                key=key,
                passed=int(line[0]),
                ready=0,
                in_flight=int(line[1]),
                started=int(line[2]),
            )
            for key, line in zip(keys, lines, strict=True)
        ],
        first_starts=[int(line[3]) if line[3] else None for line in lines],
    )


def _place(member: bytes, part: int) -> QueuePosition:
    return QueuePosition(
        unsorted(member[:WIDTH]),
        unsorted(member[WIDTH : 2 * WIDTH]),
        unsorted(member[2 * WIDTH : 3 * WIDTH]),
        member[3 * WIDTH :],
        part,
    )
