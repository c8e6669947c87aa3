"""The scan of queues with a policy or keys: the ready tasks of each partition, and the state of the scope.

A fair key may have tasks in several queues and partitions: the scan merges them. Its pass is that of the scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from outlast.model.queue_policy import FairKey, QueuePolicy, decode_policy
from outlast.stores.redis.keys import POLICY, TASKS, unsorted
from outlast.stores.redis.packing import pack
from outlast.stores.redis.session import Call, Server

WIDTH = 21  # of `sortable`


class ScanOptions(NamedTuple):
    """How far to scan: for `room` tasks, so many fair keys of a queue, so many tasks of a key (0: as many as may be
    needed), and whether every priority."""

    room: int
    fair_keys: int
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
    global_pass: int
    in_flight: int
    started: int
    first_start: int | None
    fair_keys: list[FairKey]
    first_starts: list[int | None]

    @property
    def policy(self) -> QueuePolicy:
        """The policy; without one, a policy without limits."""
        return self.rules or QueuePolicy(queue="")


class View:
    """The merged scans of all partitions."""

    def __init__(self, answers: Sequence[Any], queues: Sequence[str]) -> None:
        self.fair_keys: dict[str, FairKeyTasks] = {"": FairKeyTasks()}
        self.is_ruled = any(is_ruled == b"1" for _, is_ruled, *_ in answers)
        self.returning = [n for n, answer in enumerate(answers) if answer[2] == b"1"]
        """Partitions that have recorded releases of slots."""
        self.has_more_fair_keys = False
        # Queue by queue: the script orders fair keys per queue.
        for n, queue in enumerate(queues):
            for part, answer in enumerate(answers):
                bare, fair_keys, has_more = answer[3][n]
                self.has_more_fair_keys |= has_more == b"1"
                self.fair_keys[""].places += (_place(member, part) for member in bare)
                for key, turn, places, key_has_more in fair_keys:
                    fair_key = self.fair_keys.setdefault(key.decode(), FairKeyTasks())
                    fair_key.places += (_place(member, part) for member in places)
                    fair_key.has_more |= key_has_more == b"1"
                    fair_key.turns[part, queue] = int(turn)

    @property
    def is_plain(self) -> bool:
        """Whether there are only tasks without a key, in queues without a policy."""
        return not self.is_ruled and len(self.fair_keys) == 1


async def scan_queues(
    server: Server, scope: str, queues: Sequence[str], how: ScanOptions, *, timeout: float | None
) -> tuple[View, ScopeState | None]:
    """The ready tasks; with a single partition also the state of the scope."""
    parts = server.layout.partitions
    request: dict[str, Any] = {
        "scope": scope,
        "queues": list(queues),
        "room": how.room,
        "fair_keys": how.fair_keys,
        "every": how.every,
        "is_home": parts == 1,
    }
    if how.few:
        request["few"] = how.few
    names = POLICY if parts == 1 else TASKS
    calls = [Call("scan_fair_queue", part, names, [pack(request)]) for part in range(parts)]
    answers = await server.each(calls, timeout=timeout, writes=False)
    view = View(answers, queues)
    return view, _to_scope_state(answers[0][4], list(view.fair_keys)) if parts == 1 else None


async def read_scope_state(
    server: Server, scope: str, keys: Sequence[str], *, timeout: float | None
) -> ScopeState:
    """The state of a scope and of these keys."""
    request = {"scope": scope, "is_home": True, "asked": list(keys)}
    call = Call("scan_fair_queue", server.layout.part_for(scope), POLICY, [pack(request)])
    answer = await server.call(call, timeout=timeout, writes=False)
    return _to_scope_state(answer[4], keys)


def _to_scope_state(packed: Sequence[Any], keys: Sequence[str]) -> ScopeState:
    rules, global_pass, in_flight, started, first, fair_keys = packed
    return ScopeState(
        rules=decode_policy(rules) if rules else None,
        global_pass=int(global_pass),
        in_flight=int(in_flight),
        started=int(started),
        first_start=int(first) if first else None,
        fair_keys=[
            FairKey(
                key=key,
                pass_value=int(fair_key[0]),
                ready=0,
                in_flight=int(fair_key[1]),
                started=int(fair_key[2]),
            )
            for key, fair_key in zip(keys, fair_keys, strict=True)
        ],
        first_starts=[int(fair_key[3]) if fair_key[3] else None for fair_key in fair_keys],
    )


def _place(member: bytes, part: int) -> QueuePosition:
    return QueuePosition(
        unsorted(member[:WIDTH]),
        unsorted(member[WIDTH : 2 * WIDTH]),
        unsorted(member[2 * WIDTH : 3 * WIDTH]),
        member[3 * WIDTH :],
        part,
    )
