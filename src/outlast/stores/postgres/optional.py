"""The optional part of the PostgreSQL store: inbox, tasks, what a run owns, keys, the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from outlast.errors import RunsOpen, StoreClosed
from outlast.model.claim import Claim, check_ttl
from outlast.model.commit import Refusal
from outlast.model.commit_rules import WakeupKind
from outlast.model.ids import check_id, check_name
from outlast.model.inbox import Item, Receipt, Send
from outlast.model.query import check_limit
from outlast.model.run import Status
from outlast.model.run_contents import Activity, Entry, Fact, Timer
from outlast.model.snapshot import Snapshot
from outlast.model.task import Task
from outlast.model.times import to_micros
from outlast.model.validation import check_after, check_fact, check_key, check_moment, check_send
from outlast.ports.clock import Clock, ServerClock, SystemClock
from outlast.ports.notifier import Notifier
from outlast.ports.read_batcher import ReadBatcher
from outlast.ports.store import Store
from outlast.stores.postgres import rows
from outlast.stores.postgres.commit import pack_sends, receipts_of
from outlast.stores.postgres.connection import Place
from outlast.stores.postgres.database import POOL_SIZE, Database
from outlast.stores.postgres.rows import claim_of, quote, quote_or_none
from outlast.stores.postgres.run_details import micros_or_none
from outlast.stores.postgres.session import Session


class PostgresOptional(Store):
    """All that a minimal store may leave out."""

    def __init__(
        self,
        place: Place | Database,
        *,
        schema: str = "outlast",
        prefix: str = "",
        pool_size: int = POOL_SIZE,
        step_pool_size: int = POOL_SIZE,
        notify: bool = True,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock=clock or ServerClock())
        borrowed = isinstance(place, Database)
        if not isinstance(place, Database):
            place = Database(
                place,
                schema=schema,
                prefix=prefix,
                pool_size=pool_size,
                step_pool_size=step_pool_size,
                notify=notify,
            )
        self.notifier: Notifier = place.notifier
        self._session = Session(place, StoreClosed, clock=judging(clock), borrowed=borrowed)
        self._records = ReadBatcher(self._read_records)
        self._inboxes = ReadBatcher(self._read_inboxes)

    async def _read_records(self, ids: Sequence[str], timeout: float | None) -> dict[str, rows.Row]:
        found = await self._session.read("find_runs", ids, timeout=timeout)
        return {row[1]: row for row in found}

    async def _read_inboxes(
        self, pages: Sequence[tuple[str, int, int]], timeout: float | None
    ) -> dict[tuple[str, int, int], list[rows.Row]]:
        columns = zip(*pages, strict=True)
        found: dict[tuple[str, int, int], list[rows.Row]] = {}
        for place, *row in await self._session.read("load_inboxes", *columns, timeout=timeout):
            found.setdefault(pages[place - 1], []).append(row)
        return found

    @property
    def database(self) -> Database:
        """Where its statements go."""
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
        for send in sends:
            check_send(send)
        found = await self._session.write(
            "send", *self._session.time, *pack_sends(sends, finishes, keeps), timeout=timeout
        )
        receipts = receipts_of(sends, [*finishes, *keeps], found)
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return receipts

    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        check_after(after)
        check_limit(limit)
        check_id(run_id, child=True)
        found = await self._inboxes.find((run_id, after, limit), timeout)
        return [rows.to_item(row) for row in found or ()]

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
        check_id(run_id, child=True)
        check_name(task_id, "task id")
        check_name(owner, "owner")
        check_ttl(ttl)
        await self._session.hold(owner)
        span = None if ttl is None else round(ttl * 1_000_000)
        found = await self._session.write(
            "claim_task", *self._session.time, run_id, task_id, owner, span, timeout=timeout
        )
        if not found:
            return None
        claimed_at = await self._session.now(timeout=timeout) if span is None else None
        return claim_of(found[0], span, claimed_at)

    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        check_limit(limit)
        found = await self._session.read(
            "find_available_tasks",
            *self._session.time,
            quote_or_none(queue),
            limit,
            timeout=timeout,
        )
        return [rows.to_task(row) for row in found]

    # -- what a run owns ----------------------------------------------------------------------

    async def timers(self, run_id: str, *, timeout: float | None = None) -> list[Timer]:
        check_id(run_id, child=True)
        found = await self._session.read("load_timers", run_id, timeout=timeout)
        return [rows.to_timer(row) for row in found]

    async def due_timers(
        self, *, now: datetime | None = None, limit: int = 100, timeout: float | None = None
    ) -> list[Timer]:
        check_limit(limit)
        if now is not None:
            check_moment(now, "now")
        found = await self._session.read(
            "find_due_timers", *self._session.time, micros_or_none(now), limit, timeout=timeout
        )
        return [rows.to_timer(row) for row in found]

    async def entries(self, run_id: str, *, timeout: float | None = None) -> list[Entry]:
        check_id(run_id, child=True)
        found = await self._session.read("load_entries", run_id, timeout=timeout)
        return [rows.to_entry(run_id, row) for row in found]

    async def activities(self, run_id: str, *, timeout: float | None = None) -> list[Activity]:
        check_id(run_id, child=True)
        found = await self._session.read("load_activities", run_id, timeout=timeout)
        return [rows.to_activity(row) for row in found]

    async def find_activity(
        self, activity_id: str, *, timeout: float | None = None
    ) -> Activity | None:
        check_name(activity_id, "activity id")
        found = await self._session.read("find_activity", activity_id, timeout=timeout)
        return rows.to_activity(found[0]) if found else None

    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        check_id(run_id, child=True)
        found = await self._session.read("find_snapshot", run_id, timeout=timeout)
        return rows.to_snapshot(found[0]) if found else None

    async def drop_snapshot(self, run_id: str, *, timeout: float | None = None) -> bool:
        check_id(run_id, child=True)
        return bool(await self._session.write("drop_snapshot", run_id, timeout=timeout))

    async def snapshot_ids(
        self, *, after: str = "", limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        check_limit(limit)
        found = await self._session.read("find_snapshot_ids", quote(after), limit, timeout=timeout)
        return [run_id for (run_id,) in found]

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        found = await self._session.read("find_fact", quote(root), quote(hash), timeout=timeout)
        return Fact(hash, found[0][0], root) if found else None

    async def put_fact(self, fact: Fact, *, timeout: float | None = None) -> None:
        check_fact(fact)
        await self._session.write("put_fact", fact.hash, fact.data, timeout=timeout)

    async def drop_fact(self, hash: str, *, timeout: float | None = None) -> bool:
        return bool(await self._session.write("drop_fact", quote(hash), timeout=timeout))

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
        check_key(scope, key, value, run_id)
        while not await self._session.write(
            "remember_key", scope, key, quote(value), run_id, timeout=timeout
        ):
            bound = await self.recall(scope, key, timeout=timeout)
            if bound is not None:
                return bound
            # It was bound and has been deleted since.
        return None

    async def recall(self, scope: str, key: str, *, timeout: float | None = None) -> str | None:
        found = await self._session.read("recall_key", quote(scope), quote(key), timeout=timeout)
        return rows.unquote(found[0][0]) if found else None

    # -- the end ------------------------------------------------------------------------------

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
        check_id(run_id, child=True)
        seen = open_at or {}
        items, _, blobs = pack_sends(sends, (), ())
        ((gone, alive),) = await self._session.write(
            *("delete", *self._session.time, run_id, quote_or_none(uid), only_ended),
            *(list(seen), list(seen.values()), items, blobs),
            timeout=timeout,
        )
        if alive:
            raise RunsOpen(run_id, alive)
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return bool(gone)

    async def expire(
        self,
        before: datetime,
        *,
        status: Collection[Status] = (),
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[str]:
        check_limit(limit)
        check_moment(before, "before")
        statuses = [one.value for one in status] if status else None
        found = await self._session.write(
            "expire", to_micros(before), statuses, limit, timeout=timeout
        )
        return sorted(id for (id,) in found)


def judging(clock: Clock | None) -> Clock | None:
    """The clock that judges leases and timers, or None for the server's. The system's clock of one
    of many machines is no judge."""
    return None if isinstance(clock, SystemClock) else clock
