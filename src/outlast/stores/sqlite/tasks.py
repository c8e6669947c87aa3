"""Tasks: rows that are leased, returned, or moved to the dead ones. Store and queue share them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from outlast.model.claim import Claim
from outlast.model.queue_policy import counts_places, decode_policy, scope_of
from outlast.model.run_contents import DeadTask, Task
from outlast.model.times import EPOCH, from_micros, to_micros
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.rows import (
    metadata_of,
    micros_or_none,
    moment,
    payload,
    raw,
    text,
)
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import SessionStore
from outlast.stores.sqlite.unit_of_work import Counters

INSERT_TASKS = query("insert_tasks")
INSERT_DEAD_TASKS = query("insert_dead_tasks")
FIND_TASK = query("find_task")
LOAD_TASK = query("load_task")
FIND_AVAILABLE_TASK_OF_RUN = query("find_available_task_of_run")
FIND_LEVEL = query("find_level")
FIND_QUEUES = query("find_queues")
FIND_DEAD_QUEUES = query("find_dead_queues")
FIND_READY = query("find_ready")
FIND_KEYED_TASK = query("find_keyed_task")
HAS_AWAKE_FAIR_KEY = query("has_awake_fair_key")
FIND_EXPIRED_TASKS = query("find_expired_tasks")
CLAIM_TASK = query("claim_task")
FINISH_TASKS = query("finish_tasks")
KEEP_TASKS = query("keep_tasks")
LOAD_POLICY = query("load_policy")
DROP_TASKS = query("drop_tasks")
DROP_DEAD_TASKS = query("drop_dead_tasks")

SMALLEST, LARGEST = -(2**63), 2**63 - 1
ALL = -1  # as a limit


class TaskRow(Struct):
    """A row of `tasks`, in the order of its columns."""

    key: int
    queue: str
    run_id: str
    id: str
    uid: str
    kind: str
    name: str
    step: str
    definition: str
    priority: int
    run_at: int | None
    attempt: int
    metadata: str | None
    enqueued_at: int
    input: bytes | None
    ready_at: int
    token: int
    owner: str | None
    claimed_until: int | None
    fair_key: str


class SqliteTasks(SessionStore):
    """Claims on single tasks, and what is available."""

    async def claim_task(
        self,
        run_id: str,
        task_id: str,
        owner: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Claim | None:
        await self._session.register_owner(owner, self.clock, timeout=timeout)
        return await self._session.write(
            lambda db: claim_task(db, run_id, task_id, owner, ttl, self.clock.now()),
            timeout=timeout,
        )

    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        queues = None if queue is None else [queue]
        return await self._session.read(
            lambda db: [
                to_task(row) for row in find_available(db, queues, self.clock.now(), limit)
            ],
            timeout=timeout,
            small=limit == 1,
        )


def insert_tasks(connection: Connection, tasks: Sequence[Task], *, now: int, earliest: int) -> None:
    """Add tasks that are not delivered before `earliest`; existing tasks stay as they are."""
    rows = [
        (
            *_columns(task, task.uid, now),
            earliest if task.run_at is None else max(to_micros(task.run_at), earliest),
            task.key,
        )
        for task in tasks
    ]
    connection.executemany(INSERT_TASKS, rows)


def insert_dead_tasks(
    connection: Connection, dead: Sequence[DeadTask], *, uid: str, now: int
) -> None:
    """Add dead tasks of a run that is moved here."""
    rows = []
    for one in dead:
        enqueued = one.task.enqueued_at
        columns = _columns(one.task, uid, now if enqueued == EPOCH else to_micros(enqueued))
        rows.append((*columns, one.reason, to_micros(one.died_at), one.task.key))
    connection.executemany(INSERT_DEAD_TASKS, rows)


def _columns(task: Task, uid: str, enqueued_at: int) -> tuple[object, ...]:
    """The first columns of `tasks` and `dead_tasks`."""
    return (
        task.queue,
        task.run_id,
        task.id,
        uid,
        task.kind,
        task.name,
        task.step,
        task.definition,
        task.priority,
        micros_or_none(task.run_at),
        task.attempt,
        text(task.metadata) if task.metadata else None,
        enqueued_at,
        payload(task.input),
    )


def drop_tasks(connection: Connection, tasks: Sequence[tuple[str, str]]) -> None:
    """Delete tasks by run and id, in any queue and state."""
    connection.executemany(DROP_TASKS, tasks)
    connection.executemany(DROP_DEAD_TASKS, tasks)


def finish_tasks(connection: Connection, claims: Sequence[Claim]) -> None:
    """Delete the tasks that claims hold; not those of the same id in other queues."""
    connection.executemany(
        FINISH_TASKS,
        [(claim.run_id, claim.task_id or "", claim.queue or "") for claim in claims],
    )


def keep_tasks(connection: Connection, claims: Sequence[Claim]) -> None:
    """Remove the expiry of claims."""
    connection.executemany(
        KEEP_TASKS,
        [(claim.run_id, claim.task_id or "", claim.queue or "") for claim in claims],
    )


def find_task(connection: Connection, claim: Claim) -> TaskRow | None:
    """The task of a claim, held or not."""
    key = (claim.run_id, claim.task_id or "", claim.queue or "")
    rows = connection.execute(FIND_TASK, key).fetchall()
    return TaskRow(*rows[0]) if rows else None


def find_held(connection: Connection, claim: Claim) -> TaskRow | None:
    """The task that a claim still holds, or None if it was lost."""
    task = find_task(connection, claim)
    held = task is not None and task.owner is not None and task.token == claim.token
    return task if held else None


def find_alive(connection: Connection, claim: Claim, now: datetime) -> TaskRow | None:
    """The task that a claim may continue to hold. Where a policy limits concurrency, an expired lease
    has lost its place."""
    task = find_held(connection, claim)
    if task is None or task.claimed_until is None or task.claimed_until > to_micros(now):
        return task
    rows = connection.execute(LOAD_POLICY, (scope_of(task.queue),)).fetchall()
    rules = rows[0][0] if rows else None
    return None if rules is not None and counts_places(decode_policy(rules)) else task


def claim_task(
    connection: Connection, run_id: str, task_id: str, owner: str, ttl: float | None, now: datetime
) -> Claim | None:
    """Claim one task of a run, if it is available."""
    parameters = {"run_id": run_id, "id": task_id, "now": to_micros(now)}
    rows = connection.execute(FIND_AVAILABLE_TASK_OF_RUN, parameters).fetchall()
    if not rows:
        return None
    return lease_all(connection, [TaskRow(*rows[0])], owner, ttl, now)[0]


def lease_all(
    connection: Connection, tasks: Sequence[TaskRow], owner: str, ttl: float | None, now: datetime
) -> list[Claim]:
    """Claim tasks, and set the attempts of their rows. Without `ttl` the claims never expire."""
    counters = Counters(connection)
    until = None if ttl is None else now + timedelta(seconds=ttl)
    claims = [
        Claim(
            owner=owner,
            token=counters.next_token(),
            claimed_at=now,
            expires_at=until,
            run_id=task.run_id,
            uid=task.uid,
            task_id=task.id,
            queue=task.queue,
        )
        for task in tasks
    ]
    counters.save()
    rows = [
        (owner, claim.token, micros_or_none(until), task.attempt, task.key)
        for task, claim in zip(tasks, claims, strict=True)
    ]
    connection.executemany(CLAIM_TASK, rows)
    return claims


def find_available(
    connection: Connection, queues: Collection[str] | None, now: datetime, limit: int
) -> list[TaskRow]:
    """Tasks of these queues, or of all, that are due and unclaimed, in the order in which they are to
    be done."""
    if queues is None:
        queues = [name for (name,) in connection.execute(FIND_QUEUES).fetchall()]
    at = to_micros(now)
    places = [place for name in queues for place in available_in(connection, name, at, limit)]
    for name in queues:
        asked = {"queue": name, "now": at, "limit": limit}
        places += connection.execute(FIND_KEYED_TASK, asked).fetchall()
    # Outside a transaction another process may have deleted a task meanwhile.
    return [
        TaskRow(*row)
        for _, _, key in sorted(places)[:limit]
        for row in connection.execute(LOAD_TASK, (key,)).fetchall()
    ]


def load_task(connection: Connection, key: int) -> TaskRow:
    """A task that exists."""
    [row] = connection.execute(LOAD_TASK, (key,)).fetchall()
    return TaskRow(*row)


def has_available(connection: Connection, queues: Collection[str], now: datetime) -> bool:
    """Whether these queues may have a task that is due and unclaimed."""
    at = to_micros(now)
    return any(
        available_in(connection, queue, at, 1)
        or scalar(connection, HAS_AWAKE_FAIR_KEY, {"queue": queue, "now": at})
        for queue in queues
    )


def queue_names(connection: Connection) -> list[str]:
    """The queues that hold a task in any state."""
    living = connection.execute(FIND_QUEUES).fetchall()
    return sorted({name for (name,) in (*living, *connection.execute(FIND_DEAD_QUEUES).fetchall())})


def available_in(
    connection: Connection, queue: str, now: int, limit: int, *, every_level: bool = False
) -> list[tuple[int, int, int]]:
    """The first `limit` tasks without a fair key in a queue, as (priority, ready at, key), unordered; with
    `every_level` that many of each priority."""
    parameters = {"queue": queue, "now": now, "limit": limit}
    late = {**parameters, "limit": ALL if every_level else limit}
    places = connection.execute(FIND_EXPIRED_TASKS, late).fetchall()
    free = 0
    level = SMALLEST
    while free < limit or every_level:
        priority = scalar(connection, FIND_LEVEL, {"queue": queue, "priority": level})
        if priority is None:
            break
        ready = connection.execute(FIND_READY, {**parameters, "priority": priority}).fetchall()
        places += ready
        free += len(ready)
        if priority == LARGEST:
            break
        level = priority + 1
    return places


def to_task(row: TaskRow | DeadTaskRow) -> Task:
    """The task of a row."""
    return Task(
        id=row.id,
        queue=row.queue,
        kind=row.kind,
        name=row.name,
        run_id=row.run_id,
        uid=row.uid,
        step=row.step,
        definition=row.definition,
        input=raw(row.input),
        priority=row.priority,
        run_at=moment(row.run_at),
        attempt=row.attempt,
        metadata=metadata_of(row.metadata),
        enqueued_at=from_micros(row.enqueued_at),
        key=row.fair_key,
    )


class DeadTaskRow(Struct):
    """A row of `dead_tasks`, in the order of its columns without the key."""

    queue: str
    run_id: str
    id: str
    uid: str
    kind: str
    name: str
    step: str
    definition: str
    priority: int
    run_at: int | None
    attempt: int
    metadata: str | None
    enqueued_at: int
    input: bytes | None
    reason: str
    died_at: int
    fair_key: str
