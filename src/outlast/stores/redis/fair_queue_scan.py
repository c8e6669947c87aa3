"""A look at queues that have rules or lines: what is ready in every partition, and how the scope stands.

A line is the tasks of one key. Over several queues and partitions it is one line all the same: what each
has of it is put together here, and its pass is the scope's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from outlast.model.queue_policy import Line, QueuePolicy, decode_policy
from outlast.stores.redis.keys import POLICY, TASKS, unsorted
from outlast.stores.redis.packing import pack
from outlast.stores.redis.session import Call, Server

WIDTH = 21  # of `sortable`


class Look(NamedTuple):
    """How far to look: for `room` tasks, at so many lines of a queue, at so many tasks of a line (0: as
    many as may be needed), and whether at every priority."""

    room: int
    lines: int
    few: int = 0
    every: bool = False


class QueuePosition(NamedTuple):
    """A ready task, and where. Sorts by priority, then by who has been ready longest."""

    priority: int
    ready: int
    order: int
    name: bytes
    part: int


class Found:
    """A line as all partitions together see it."""

    def __init__(self) -> None:
        self.places: list[QueuePosition] = []
        self.has_more = False
        self.turns: dict[tuple[int, str], int] = {}
        """How far each partition thinks it is, in each queue."""


class Standing(NamedTuple):
    """How a scope stands: its rules, what they count, and each line that was asked for."""

    rules: QueuePolicy | None
    present: int
    in_flight: int
    started: int
    first_start: int | None
    lines: list[Line]
    first_starts: list[int | None]

    @property
    def policy(self) -> QueuePolicy:
        """The rules. None are rules that limit nothing."""
        return self.rules or QueuePolicy(queue="")


class View:
    """What all partitions have shown."""

    def __init__(self, answers: Sequence[Any], queues: Sequence[str]) -> None:
        self.lines: dict[str, Found] = {"": Found()}
        self.is_ruled = any(is_ruled == b"1" for _, is_ruled, *_ in answers)
        self.returning = [n for n, answer in enumerate(answers) if answer[2] == b"1"]
        """Partitions that have slots to give back."""
        self.has_more_lines = False
        # Queue by queue, as the script tells how their lines stand.
        for n, queue in enumerate(queues):
            for part, answer in enumerate(answers):
                bare, lines, has_more = answer[3][n]
                self.has_more_lines |= has_more == b"1"
                self.lines[""].places += (_place(member, part) for member in bare)
                for key, turn, places, line_has_more in lines:
                    line = self.lines.setdefault(key.decode(), Found())
                    line.places += (_place(member, part) for member in places)
                    line.has_more |= line_has_more == b"1"
                    line.turns[part, queue] = int(turn)

    @property
    def is_plain(self) -> bool:
        """Whether there are only tasks without a key, in queues without rules."""
        return not self.is_ruled and len(self.lines) == 1


async def look(
    server: Server, scope: str, queues: Sequence[str], how: Look, *, timeout: float | None
) -> tuple[View, Standing | None]:
    """What is ready; in a store of one partition also how the scope stands."""
    parts = server.layout.partitions
    wish: dict[str, Any] = {
        "scope": scope,
        "queues": list(queues),
        "room": how.room,
        "lines": how.lines,
        "every": how.every,
        "is_home": parts == 1,
    }
    if how.few:
        wish["few"] = how.few
    names = POLICY if parts == 1 else TASKS
    calls = [Call("scan_fair_queue", part, names, [pack(wish)]) for part in range(parts)]
    answers = await server.each(calls, timeout=timeout, writes=False)
    view = View(answers, queues)
    return view, _to_standing(answers[0][4], list(view.lines)) if parts == 1 else None


async def standing(
    server: Server, scope: str, keys: Sequence[str], *, timeout: float | None
) -> Standing:
    """How a scope stands, and how the lines of these keys do."""
    wish = {"scope": scope, "is_home": True, "asked": list(keys)}
    call = Call("scan_fair_queue", server.layout.part_for(scope), POLICY, [pack(wish)])
    answer = await server.call(call, timeout=timeout, writes=False)
    return _to_standing(answer[4], keys)


def _to_standing(told: Sequence[Any], keys: Sequence[str]) -> Standing:
    rules, present, in_flight, started, first, lines = told
    return Standing(
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
