"""FairQueue: which tasks of a queue with a policy or with keys are next, by stride scheduling.

`outlast.model.queue_policy` has the rules; this applies them by index. Awake fair keys are read in the
order of their pass, as many as there is room for. A fair key that has nothing ready, or is at its limit,
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
    FairKey,
    PolicyChange,
    QueuePolicy,
    allocate,
    decode_policy,
    encode_policy,
    key_room,
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
HAS_FAIR_KEYS = query("has_fair_keys")
WAKE_FAIR_KEYS = query("wake_fair_keys")
INSERT_FAIR_KEY = query("insert_fair_key")
COUNT_AWAKE = query("count_awake")
FIND_FAIR_KEYS = query("find_fair_keys")
FORGET_FAIR_KEYS = query("forget_fair_keys")
FIND_FAIR_KEY = query("find_fair_key")
COUNT_FAIR_KEY = query("count_fair_key")
MOVE_FAIR_KEY = query("move_fair_key")
FIND_FAIR_KEY_TIME = query("find_fair_key_time")
PUT_KEY_TO_SLEEP = query("put_key_to_sleep")
SAVE_GLOBAL_PASS = query("save_global_pass")
COUNT_IN_FLIGHT = query("count_in_flight")
COUNT_STARTS = query("count_starts")
INSERT_START = query("insert_start")
FORGET_STARTS = query("forget_starts")
FIND_FAIR_KEY_FIRST = query("find_fair_key_first")
FIND_FAIR_KEY_LEVEL = query("find_fair_key_level")
FIND_FAIR_KEY_READY = query("find_fair_key_ready")
FIND_FAIR_KEY_EXPIRED = query("find_fair_key_expired")

NEVER = LARGEST

Position = tuple[int, int, int]
"""Priority, time of readiness and key of a task."""


class KeyPart(msgspec.Struct):
    """The tasks of one key in one queue of a scope: a part of a fair_key."""

    queue: str
    key: str
    pass_value: int
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

    def next_positions(self, queues: Sequence[str], room: int, global_pass: int) -> list[Position]:
        """The next tasks, at most `room`. Advances the pass of their fair keys and counts their starts."""
        in_flight, started = self._in_flight(), self._started()
        room = min(room, queue_room(self.policy, in_flight=in_flight, started=started))
        if room <= 0:
            return []
        parts = [part for queue in queues for part in self._awake(queue, room)]
        while True:
            fair_keys = _fair_keys(parts)
            shares = allocate(self.policy, fair_keys, room, global_pass=global_pass)
            for part in parts:
                if part.key in shares.short:
                    part.counted = 4 * part.counted
                    part.ready = self._count(part)
            if not shares.short:
                break
        by_key: dict[str, list[KeyPart]] = {}
        for part in parts:
            by_key.setdefault(part.key, []).append(part)
        chosen: list[Position] = []
        for key, count in shares.given.items():
            places = [place for part in by_key[key] for place in self._positions(part, count)]
            chosen += sorted(places, key=self._urgency)[:count]
        scope = self.policy.queue
        moved = [
            (fair_key.pass_value, scope, fair_key.key)
            for fair_key in fair_keys
            if fair_key.key in shares.given
        ]
        self.db.executemany(MOVE_FAIR_KEY, moved)
        self._remember_starts(shares.given)
        if shares.global_pass != global_pass:
            reached = {"scope": self.policy.queue, "global_pass": shares.global_pass}
            self.db.execute(SAVE_GLOBAL_PASS, reached)
            self.db.execute(FORGET_FAIR_KEYS, reached)
        return chosen

    # -- fair keys --------------------------------------------------------------------------------

    def _awake(self, queue: str, room: int) -> list[KeyPart]:
        """The first fair keys of a queue that can hand tasks out, in the order of their pass."""
        self.db.execute(WAKE_FAIR_KEYS, {"queue": queue, "now": self.now})
        awake = int(scalar(self.db, COUNT_AWAKE, (queue, room)))
        # Among many fair keys each gets few tasks.
        few = 1 + room // max(awake, 1)
        found = [self._keyless(queue, room)]
        pass_value, key = -1, ""
        while len(found) <= room:
            asked = {
                **self._bounds(queue),
                "few": few,
                "pass_value": pass_value,
                "fair_key": key,
                "limit": room,
            }
            rows = self.db.execute(FIND_FAIR_KEYS, asked).fetchall()
            for key, pass_value, free, late, in_flight, started in rows:
                part = KeyPart(queue, key, pass_value, free + late, few, late, in_flight, started)
                [fair_key] = _fair_keys([part])
                if key_room(self.policy, fair_key) > 0:
                    found.append(part)
                else:
                    self._put_to_sleep(part)
            if len(rows) < room:
                break
        return found

    def _keyless(self, queue: str, room: int) -> KeyPart:
        """The fair key of tasks without a key."""
        pass_value = scalar(self.db, FIND_FAIR_KEY, (queue, ""))
        if pass_value is None:
            self.db.execute(
                INSERT_FAIR_KEY, {"queue": queue, "fair_key": "", "scope": self.policy.queue}
            )
            pass_value = scalar(self.db, FIND_FAIR_KEY, (queue, ""))
        return KeyPart(queue, "", pass_value, len(self._keyless_positions(queue, room)), room + 1)

    def _count(self, part: KeyPart) -> int:
        asked = {"queue": part.queue, "fair_key": part.key, "now": self.now, "few": part.counted}
        return int(scalar(self.db, COUNT_FAIR_KEY, asked))

    def _put_to_sleep(self, part: KeyPart) -> None:
        asked = {**self._bounds(part.queue), "fair_key": part.key}
        [times] = self.db.execute(FIND_FAIR_KEY_TIME, asked).fetchall()
        wake_at = min((at for at in times if at is not None), default=NEVER)
        self.db.execute(PUT_KEY_TO_SLEEP, (wake_at, part.queue, part.key))

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

    def _positions(self, part: KeyPart, count: int) -> list[Position]:
        if not part.key:
            return self._keyless_positions(part.queue, count)
        asked = {"queue": part.queue, "fair_key": part.key, "now": self.now, "limit": count}
        places: list[Position] = []
        if part.late:
            late = {**asked, "limit": ALL if self._ages else count}
            places = self.db.execute(FIND_FAIR_KEY_EXPIRED, late).fetchall()
        if not self._ages:
            first = self.db.execute(FIND_FAIR_KEY_FIRST, asked).fetchall()
            if all(
                ready_at <= self.now for _, ready_at, _ in first
            ):  # most fair keys are like that
                return places + first
        free, level = 0, SMALLEST
        while free < count or self._ages:
            priority = scalar(self.db, FIND_FAIR_KEY_LEVEL, {**asked, "priority": level})
            if priority is None:
                break
            ready = self.db.execute(FIND_FAIR_KEY_READY, {**asked, "priority": priority}).fetchall()
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


def _fair_keys(parts: Sequence[KeyPart]) -> list[FairKey]:
    """Parts of the same key are one fair_key."""
    fair_keys: dict[str, FairKey] = {}
    for part in parts:
        fair_key = fair_keys.setdefault(
            part.key,
            FairKey(
                key=part.key,
                pass_value=part.pass_value,
                ready=0,
                in_flight=part.in_flight,
                started=part.started,
            ),
        )
        fair_key.ready += part.ready
        fair_key.pass_value = max(fair_key.pass_value, part.pass_value)
        fair_key.more = fair_key.more or part.ready >= part.counted
    return list(fair_keys.values())


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
        rules, global_pass = (rows[0][0], rows[0][2]) if rows else (None, 0)
        if rules is None and not any(scalar(connection, HAS_FAIR_KEYS, (queue,)) for queue in own):
            plain += own
        else:
            ruled.append(
                (
                    QueuePolicy(queue=scope) if rules is None else decode_policy(rules),
                    global_pass,
                    own,
                )
            )
    places: list[Position] = []
    for policy, global_pass, own in rotated(ruled, at):
        if len(places) < room:
            places += FairQueue(connection, policy, at).next_positions(
                own, room - len(places), global_pass
            )
    if plain and len(places) < room:
        found = [place for queue in plain for place in available_in(connection, queue, at, room)]
        places += sorted(found)[: room - len(places)]
    return [load_task(connection, key) for _, _, key in places]


def within(scope: str) -> dict[str, object]:
    """The queues of a scope as a range: its own name, and names that continue with a slash."""
    return {"scope": scope, "within": f"{scope}/", "above": f"{scope}0"}
