"""FairQueue: which tasks of a queue with a policy or with keys are next, by stride scheduling.

`outlast.model.queue_policy` has the rules; this applies them by index. Awake lines are read in the
order of their pass, as many as there is room for. A line that has nothing ready, or is at its limit,
sleeps until that may change. So the cost depends on the tasks that are handed out, not on those that
wait.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from outlast.model.queue_policy import (
    KEPT_CHANGES,
    ExpectedPolicy,
    Line,
    PolicyChange,
    QueuePolicy,
    allocate,
    decode_policy,
    encode_policy,
    line_room,
    queue_room,
    rotated,
    scopes,
    urgency,
    window,
)
from outlast.model.times import from_micros, to_micros
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.tasks import (
    ALL,
    LARGEST,
    LOAD_POLICY,
    SMALLEST,
    TaskRow,
    available_in,
    load_task,
)

LOAD_POLICIES = query("load_policies")
SAVE_POLICY = query("save_policy")
INSERT_POLICY_CHANGE = query("insert_policy_change")
FORGET_POLICY_CHANGES = query("forget_policy_changes")
LOAD_POLICY_CHANGES = query("load_policy_changes")
WAKE_SCOPE = query("wake_scope")
HAS_LINES = query("has_lines")
WAKE_LINES = query("wake_lines")
INSERT_LINE = query("insert_line")
COUNT_AWAKE = query("count_awake")
FIND_LINES = query("find_lines")
FORGET_LINES = query("forget_lines")
FIND_LINE = query("find_line")
COUNT_LINE = query("count_line")
MOVE_LINE = query("move_line")
FIND_LINE_TIME = query("find_line_time")
PUT_LINE_TO_SLEEP = query("put_line_to_sleep")
SAVE_PRESENT = query("save_present")
COUNT_IN_FLIGHT = query("count_in_flight")
COUNT_STARTS = query("count_starts")
INSERT_START = query("insert_start")
FORGET_STARTS = query("forget_starts")
FIND_LINE_FIRST = query("find_line_first")
FIND_LINE_LEVEL = query("find_line_level")
FIND_LINE_READY = query("find_line_ready")
FIND_LINE_EXPIRED = query("find_line_expired")

NEVER = LARGEST

Position = tuple[int, int, int]
"""Priority, time of readiness and key of a task."""


class LinePart(msgspec.Struct):
    """The tasks of one key in one queue of a scope: a part of a line."""

    queue: str
    key: str
    passed: int
    ready: int
    counted: int
    late: int = 0
    """How many of `ready` have an expired lease."""
    in_flight: int = 0
    started: int = 0


class FairQueue(NamedTuple):
    """The tasks of one scope at one moment."""

    db: Connection
    policy: QueuePolicy
    now: int

    def next_positions(self, queues: Sequence[str], room: int, present: int) -> list[Position]:
        """The next tasks, at most `room`. Advances the pass of their lines and counts their starts."""
        in_flight, started = self._in_flight(), self._started()
        room = min(room, queue_room(self.policy, in_flight=in_flight, started=started))
        if room <= 0:
            return []
        parts = [part for queue in queues for part in self._awake(queue, room)]
        while True:
            lines = _lines(parts)
            shares = allocate(self.policy, lines, room, present=present)
            for part in parts:
                if part.key in shares.short:
                    part.counted = 4 * part.counted
                    part.ready = self._count(part)
            if not shares.short:
                break
        by_key: dict[str, list[LinePart]] = {}
        for part in parts:
            by_key.setdefault(part.key, []).append(part)
        chosen: list[Position] = []
        for key, count in shares.given.items():
            places = [place for part in by_key[key] for place in self._positions(part, count)]
            chosen += sorted(places, key=self._urgency)[:count]
        scope = self.policy.queue
        moved = [(line.passed, scope, line.key) for line in lines if line.key in shares.given]
        self.db.executemany(MOVE_LINE, moved)
        self._remember_starts(shares.given)
        if shares.present != present:
            reached = {"scope": self.policy.queue, "present": shares.present}
            self.db.execute(SAVE_PRESENT, reached)
            self.db.execute(FORGET_LINES, reached)
        return chosen

    # -- lines --------------------------------------------------------------------------------

    def _awake(self, queue: str, room: int) -> list[LinePart]:
        """The first lines of a queue that can hand tasks out, in the order of their pass."""
        self.db.execute(WAKE_LINES, {"queue": queue, "now": self.now})
        awake = int(scalar(self.db, COUNT_AWAKE, (queue, room)))
        # Among many lines each gets few tasks.
        few = 1 + room // max(awake, 1)
        found = [self._keyless(queue, room)]
        passed, key = -1, ""
        while len(found) <= room:
            asked = {
                **self._bounds(queue),
                "few": few,
                "passed": passed,
                "line": key,
                "limit": room,
            }
            rows = self.db.execute(FIND_LINES, asked).fetchall()
            for key, passed, free, late, in_flight, started in rows:
                part = LinePart(queue, key, passed, free + late, few, late, in_flight, started)
                [line] = _lines([part])
                if line_room(self.policy, line) > 0:
                    found.append(part)
                else:
                    self._put_to_sleep(part)
            if len(rows) < room:
                break
        return found

    def _keyless(self, queue: str, room: int) -> LinePart:
        """The line of tasks without a key."""
        passed = scalar(self.db, FIND_LINE, (queue, ""))
        if passed is None:
            self.db.execute(INSERT_LINE, {"queue": queue, "line": "", "scope": self.policy.queue})
            passed = scalar(self.db, FIND_LINE, (queue, ""))
        return LinePart(queue, "", passed, len(self._keyless_positions(queue, room)), room + 1)

    def _count(self, part: LinePart) -> int:
        asked = {"queue": part.queue, "line": part.key, "now": self.now, "few": part.counted}
        return int(scalar(self.db, COUNT_LINE, asked))

    def _put_to_sleep(self, part: LinePart) -> None:
        asked = {**self._bounds(part.queue), "line": part.key}
        [times] = self.db.execute(FIND_LINE_TIME, asked).fetchall()
        wake_at = min((at for at in times if at is not None), default=NEVER)
        self.db.execute(PUT_LINE_TO_SLEEP, (wake_at, part.queue, part.key))

    def _bounds(self, queue: str) -> dict[str, object]:
        rate = self.policy.key_rate
        per = 0 if rate is None else round(rate.per * 1_000_000)
        return {
            **within(self.policy.queue),
            "queue": queue,
            "now": self.now,
            "in_flight": self.policy.key_concurrency,
            "since": None if rate is None else self.now - per,
            "per": per,
        }

    def _keyless_positions(self, queue: str, count: int) -> list[Position]:
        return available_in(self.db, queue, self.now, count, every_level=self._ages)

    def _positions(self, part: LinePart, count: int) -> list[Position]:
        if not part.key:
            return self._keyless_positions(part.queue, count)
        asked = {"queue": part.queue, "line": part.key, "now": self.now, "limit": count}
        places: list[Position] = []
        if part.late:
            late = {**asked, "limit": ALL if self._ages else count}
            places = self.db.execute(FIND_LINE_EXPIRED, late).fetchall()
        if not self._ages:
            first = self.db.execute(FIND_LINE_FIRST, asked).fetchall()
            if all(ready_at <= self.now for _, ready_at, _ in first):  # most lines are like that
                return places + first
        free, level = 0, SMALLEST
        while free < count or self._ages:
            priority = scalar(self.db, FIND_LINE_LEVEL, {**asked, "priority": level})
            if priority is None:
                break
            ready = self.db.execute(FIND_LINE_READY, {**asked, "priority": priority}).fetchall()
            places += ready
            free += len(ready)
            if priority == LARGEST:
                break
            level = priority + 1
        return places

    @property
    def _ages(self) -> bool:
        return self.policy.ageing is not None

    def _urgency(self, place: Position) -> tuple[float, int, int]:
        priority, ready_at, key = place
        return (*urgency(self.policy, priority, ready_at), key)

    # -- the whole queue ----------------------------------------------------------------------

    def _in_flight(self) -> int:
        if self.policy.concurrency is None:
            return 0
        asked = {**within(self.policy.queue), "now": self.now}
        return int(scalar(self.db, COUNT_IN_FLIGHT, asked))

    def _started(self) -> int:
        if self.policy.rate is None:
            return 0
        since = self.now - round(self.policy.rate.per * 1_000_000)
        return int(scalar(self.db, COUNT_STARTS, (self.policy.queue, since)))

    def _remember_starts(self, given: dict[str, int]) -> None:
        seconds = window(self.policy)
        if seconds:
            scope = self.policy.queue
            starts = [(scope, key, self.now) for key, count in given.items() for _ in range(count)]
            self.db.executemany(INSERT_START, starts)
            self.db.execute(FORGET_STARTS, (scope, self.now - round(seconds * 1_000_000)))


def _lines(parts: Sequence[LinePart]) -> list[Line]:
    """Parts of the same key are one line."""
    lines: dict[str, Line] = {}
    for part in parts:
        line = lines.setdefault(
            part.key,
            Line(
                key=part.key,
                passed=part.passed,
                ready=0,
                in_flight=part.in_flight,
                started=part.started,
            ),
        )
        line.ready += part.ready
        line.passed = max(line.passed, part.passed)
        line.more = line.more or part.ready >= part.counted
    return list(lines.values())


def write_policy(
    connection: Connection,
    scope: str,
    policy: QueuePolicy | None,
    declared: QueuePolicy | None,
    seen: ExpectedPolicy | None,
    *,
    by: str,
    now: datetime,
) -> bool:
    """Store a policy with an audit line: see `Queue._write_policy`."""
    rows = connection.execute(LOAD_POLICY, (scope,)).fetchall()
    before, said = rows[0][:2] if rows else (None, None)
    if declared is not None:
        if said == encode_policy(declared):
            return True
        said = encode_policy(declared)
    if seen is not None and before != (None if seen.policy is None else encode_policy(seen.policy)):
        return False
    rules = None if policy is None else encode_policy(policy)
    connection.execute(SAVE_POLICY, {"scope": scope, "rules": rules, "declared": said})
    connection.execute(INSERT_POLICY_CHANGE, (scope, to_micros(now), by, rules))
    connection.execute(FORGET_POLICY_CHANGES, {"scope": scope, "kept": KEPT_CHANGES})
    connection.execute(WAKE_SCOPE, (scope,))  # a limit may have been raised
    return True


def load_policies(connection: Connection) -> list[QueuePolicy]:
    """The policies of all queues that have one."""
    return [decode_policy(rules) for (rules,) in connection.execute(LOAD_POLICIES).fetchall()]


def load_policy_changes(connection: Connection, scope: str, limit: int) -> list[PolicyChange]:
    """The changes of a queue's policy, the last one first."""
    return [
        PolicyChange(
            queue=scope,
            at=from_micros(at),
            by=by,
            policy=None if rules is None else decode_policy(rules),
        )
        for at, by, rules in connection.execute(LOAD_POLICY_CHANGES, (scope, limit)).fetchall()
    ]


def next_tasks(
    connection: Connection, queues: Collection[str], room: int, now: datetime
) -> list[TaskRow]:
    """The next tasks of these queues, at most `room`, under the writer's lock."""
    at = to_micros(now)
    plain: list[str] = []
    ruled: list[tuple[QueuePolicy, int, list[str]]] = []
    for scope, own in scopes(queues).items():
        rows = connection.execute(LOAD_POLICY, (scope,)).fetchall()
        rules, present = (rows[0][0], rows[0][2]) if rows else (None, 0)
        if rules is None and not any(scalar(connection, HAS_LINES, (queue,)) for queue in own):
            plain += own
        else:
            ruled.append(
                (QueuePolicy(queue=scope) if rules is None else decode_policy(rules), present, own)
            )
    places: list[Position] = []
    for policy, present, own in rotated(ruled, at):
        if len(places) < room:
            places += FairQueue(connection, policy, at).next_positions(
                own, room - len(places), present
            )
    if plain and len(places) < room:
        found = [place for queue in plain for place in available_in(connection, queue, at, room)]
        places += sorted(found)[: room - len(places)]
    return [load_task(connection, key) for _, _, key in places]


def within(scope: str) -> dict[str, object]:
    """The queues of a scope as a range: its own name, and names that continue with a slash."""
    return {"scope": scope, "within": f"{scope}/", "above": f"{scope}0"}
