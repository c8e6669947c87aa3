"""The optional methods of the SQLite store: inbox, tasks, contents of a run, keys, deletion."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from outlast.errors import StoreClosed
from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.commit_rules import WakeupKind
from outlast.model.run import Status
from outlast.model.run_contents import Activity, Entry, Fact, Item, Receipt, Send, Task, Timer
from outlast.model.snapshot import Snapshot
from outlast.ports.capabilities import Durability
from outlast.ports.clock import Clock, steady
from outlast.ports.store import Store
from outlast.stores.sqlite import delete, inbox, run_details, tasks
from outlast.stores.sqlite.connection import Connect, Synchronous, connect
from outlast.stores.sqlite.database import UNKNOWN_ROWS, Database, Session
from outlast.stores.sqlite.notifier import SqliteNotifier
from outlast.stores.sqlite.unit_of_work import UnitOfWork
from outlast.stores.sqlite.wal import LOG_HARD_LIMIT_BYTES, LOG_LIMIT_BYTES


class SqliteOptional(Store):
    """Delegates to inbox, tasks, run_details and delete."""

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        synchronous: Synchronous = "full",
        inline: bool = True,
        network_storage: bool = False,
        log_limit: int = LOG_LIMIT_BYTES,
        log_hard_limit: int = LOG_HARD_LIMIT_BYTES,
        connect: Connect = connect,
        prefix: str = "",
    ) -> None:
        super().__init__(clock=steady(clock))
        database = Database(
            location,
            synchronous=synchronous,
            inline=inline,
            network_storage=network_storage,
            log_limit=log_limit,
            log_hard_limit=log_hard_limit,
            connect=connect,
            prefix=prefix,
        )
        # With "normal" a power loss may lose the last commits, but never damages the file.
        full = synchronous == "full"
        self.durability = Durability.POWER_LOSS if full else Durability.PROCESS_CRASH
        self._session = Session(database, StoreClosed)
        self.notifier = SqliteNotifier(database.foreign_version)

    @property
    def database(self) -> Database:
        """The open file."""
        return self._session.database

    # -- inbox --------------------------------------------------------------------------------

    async def send(
        self,
        sends: Sequence[Send],
        *,
        finishes: Sequence[Claim] = (),
        keeps: Sequence[Claim] = (),
        timeout: float | None = None,
    ) -> list[Receipt | Refusal]:
        receipts = await self._session.write(
            lambda db: inbox.send_all(db, sends, finishes, keeps, self.clock.now()),
            rows=3 * len(sends) + len(finishes) + len(keeps),
            timeout=timeout,
        )
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return receipts

    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        return await self._session.read_page(
            lambda db, limit: inbox.load_inbox(db, run_id, after, limit),
            limit=limit,
            timeout=timeout,
        )

    # -- tasks --------------------------------------------------------------------------------

    async def claim_task(
        self,
        run_id: str,
        task_id: str,
        owner: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Claim | None:
        return await self._session.write(
            lambda db: tasks.claim_task(db, run_id, task_id, owner, ttl, self.clock.now()),
            timeout=timeout,
        )

    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        queues = None if queue is None else [queue]
        return await self._session.read(
            lambda db: [
                tasks.to_task(row)
                for row in tasks.find_available(db, queues, self.clock.now(), limit)
            ],
            timeout=timeout,
            small=limit == 1,
        )

    # -- contents of a run --------------------------------------------------------------------

    async def timers(self, run_id: str, *, timeout: float | None = None) -> list[Timer]:
        return await self._session.read(
            lambda db: run_details.load_timers(db, run_id), timeout=timeout, small=False
        )

    async def due_timers(
        self, *, now: datetime | None = None, limit: int = 100, timeout: float | None = None
    ) -> list[Timer]:
        moment = now or self.clock.now()
        return await self._session.read_page(
            lambda db, limit: run_details.find_due_timers(db, moment, limit),
            limit=limit,
            timeout=timeout,
        )

    async def entries(self, run_id: str, *, timeout: float | None = None) -> list[Entry]:
        return await self._session.read(
            lambda db: run_details.load_entries(db, run_id), timeout=timeout, small=False
        )

    async def activities(self, run_id: str, *, timeout: float | None = None) -> list[Activity]:
        return await self._session.read(
            lambda db: run_details.load_activities(db, run_id), timeout=timeout, small=False
        )

    async def find_activity(
        self, activity_id: str, *, timeout: float | None = None
    ) -> Activity | None:
        return await self._session.read(
            lambda db: run_details.find_activity(db, activity_id), timeout=timeout
        )

    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        return await self._session.read(
            lambda db: run_details.find_snapshot(db, run_id), timeout=timeout
        )

    async def drop_snapshot(self, run_id: str, *, timeout: float | None = None) -> bool:
        return await self._session.write(
            lambda db: run_details.drop_snapshot(db, run_id), timeout=timeout
        )

    async def snapshot_ids(
        self, *, after: str = "", limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        return await self._session.read_page(
            lambda db, limit: run_details.find_snapshot_ids(db, after, limit),
            limit=limit,
            timeout=timeout,
        )

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        return await self._session.read(
            lambda db: run_details.find_fact(db, hash, root), timeout=timeout
        )

    async def put_fact(self, fact: Fact, *, timeout: float | None = None) -> None:
        await self._session.write(lambda db: run_details.put_fact(db, fact), timeout=timeout)

    async def drop_fact(self, hash: str, *, timeout: float | None = None) -> bool:
        return await self._session.write(
            lambda db: run_details.drop_fact(db, hash), timeout=timeout
        )

    # -- idempotency keys ---------------------------------------------------------------------

    async def remember(
        self,
        scope: str,
        key: str,
        value: str,
        *,
        run_id: str | None = None,
        timeout: float | None = None,
    ) -> str | None:
        return await self._session.write(
            lambda db: run_details.remember(db, scope, key, value, run_id), timeout=timeout
        )

    async def recall(self, scope: str, key: str, *, timeout: float | None = None) -> str | None:
        return await self._session.read(
            lambda db: run_details.recall(db, scope, key), timeout=timeout
        )

    # -- deletion -----------------------------------------------------------------------------

    async def delete(
        self,
        run_id: str,
        *,
        uid: str | None = None,
        only_ended: bool = False,
        open_at: Mapping[str, str | None] | None = None,
        sends: Sequence[Send] = (),
        timeout: float | None = None,
    ) -> bool:
        # A tree may own any number of rows: never in the event loop.
        gone = await self._session.write(
            lambda db: delete.delete(
                *(UnitOfWork(db, self.clock.now()), run_id, uid),
                only_ended=only_ended,
                open_at=open_at or {},
                sends=sends,
            ),
            rows=UNKNOWN_ROWS,
            timeout=timeout,
        )
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return run_id in gone

    async def expire(
        self,
        before: datetime,
        *,
        status: Collection[Status] = (),
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[str]:
        return await self._session.write(
            lambda db: delete.expire(db, before, status, limit), rows=UNKNOWN_ROWS, timeout=timeout
        )
