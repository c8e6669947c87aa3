"""SessionStore: the constructor and upkeep of the store, which its parts share, and the deletion of runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from outlast.errors import InvalidValue, StoreClosed, StoreFault, TryAgain
from outlast.model.commit_rules import WakeupKind
from outlast.model.run import Status
from outlast.model.run_contents import Send
from outlast.ports.clock import Clock, ServerClock
from outlast.ports.store import Store
from outlast.stores.redis import delete, failover_guard
from outlast.stores.redis.failover_guard import FailoverGuard, quarantine_call
from outlast.stores.redis.find import Reads
from outlast.stores.redis.keys import Layout
from outlast.stores.redis.location import Location
from outlast.stores.redis.notifier import PubSubConnection, RedisNotifier
from outlast.stores.redis.outbox import relay, waiting
from outlast.stores.redis.session import Server, Session

RETENTION = timedelta(days=7).total_seconds()
TIDY_SECONDS = 60.0
DEFAULT = -1.0


class SessionStore(Store):
    """The base of the store's parts (inbox.py, tasks.py, …)."""

    _default_partitions: ClassVar[int] = 1

    def __init__(
        self,
        redis: str | object,
        *,
        prefix: str = "",
        partitions: int | None = None,
        retention: float | None = DEFAULT,
        clock: Clock | None = None,
        allow_eviction: bool = False,
    ) -> None:
        super().__init__(clock=clock or ServerClock())
        place = Location.parse(redis) if isinstance(redis, str) else redis
        options = place.options if isinstance(place, Location) else {}
        if partitions is None:
            partitions = _number(options.get("partitions"), self._default_partitions)
        if self._default_partitions == 1 and partitions != 1:
            raise InvalidValue("RedisStore has one partition: use RedisClusterStore for more")
        prefix = prefix or options.get("prefix", "outlast")
        layout = Layout(prefix, partitions, tagged=self._default_partitions > 1)
        self._server = Server(place, layout, clock=clock, allow_eviction=allow_eviction)
        self._session = Session(self._server, StoreClosed)
        self._given_clock = clock
        self._retention = _retention(retention, options.get("retention"))
        self._watch = FailoverGuard()
        self._reads = Reads(self._session)
        self._tidied: float | None = None
        channel = PubSubConnection(self._server)
        self.notifier = self._own_notifier = RedisNotifier(channel.publish, channel.listen)

    async def _open(self) -> None:
        await self._session.open()
        self.durability = self._server.durability
        self._own_notifier.open()

    async def _close(self) -> None:
        await self._own_notifier.close()
        await self._session.close()

    def describe(self) -> dict[str, object]:
        """Location without password, safety, and layout."""
        layout, safety = self._server.layout, self._server.safety
        return {
            "where": self._server.where,
            "prefix": layout.prefix,
            "partitions": layout.partitions,
            "retention_seconds": self._retention,
            **({} if safety is None else safety._asdict()),
        }

    async def readmit(self, run_id: str, *, timeout: float | None = None) -> bool:
        """End the quarantine of a run whose commits Redis had lost; whether it was quarantined. Check its history
        first: steps may have run that are not recorded."""
        server = await self._session.server()
        self._watch.forget(run_id)
        answer = await server.call(quarantine_call(server, run_id, {}), timeout=timeout)
        self.notifier.wake()
        return bool(answer[0] == b"done")

    async def reconcile(self, *, timeout: float | None = None) -> int:
        """Repair all indexes from the records; how many members were wrong. Needed only after manual writes to
        Redis."""
        server = await self._session.server()
        await delete.finish_all(server, timeout=timeout)
        return await failover_guard.reconcile(server, timeout=timeout)

    async def _carry(self, posted: set[int], timeout: float | None) -> dict[str, list[Any]]:
        """Carry outbox entries now, then send their wake-ups: a worker that the commit has woken may have polled before
        they arrived. What fails stays in the outbox."""
        reached: set[str] = set()
        try:
            return await relay(await self._session.server(), posted, reached, timeout=timeout)
        except (TryAgain, StoreFault):
            return {}
        finally:
            self.notifier.wake(runs=reached)

    async def _maintain(self, server: Server, timeout: float | None) -> None:
        """Periodically: carry what a crashed process has left, and apply retention."""
        now = self.clock.monotonic()
        if self._tidied is not None and now - self._tidied < TIDY_SECONDS:
            return
        self._tidied = now
        try:
            await delete.finish_all(server, timeout=timeout)
            posted = set(await waiting(server, timeout=timeout))
            if posted:
                await self._carry(posted, timeout)
            if self._retention is not None:
                before = await server.now(timeout=timeout) - timedelta(seconds=self._retention)
                await self.expire(before, timeout=timeout)
        except (TryAgain, StoreFault):
            return  # the next look does it

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
        server = await self._session.server()
        was_there, posted = await delete.delete(
            *(server, run_id, uid),
            only_ended=only_ended,
            open_at=open_at or {},
            sends=sends,
            timeout=timeout,
        )
        self._watch.forget(run_id)
        if posted:
            await self._carry(posted, timeout)
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return was_there

    async def expire(
        self,
        before: datetime,
        *,
        status: Collection[Status] = (),
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[str]:
        server = await self._session.server()
        gone, posted = await delete.expire(
            server, before, status=status, limit=limit, timeout=timeout
        )
        if posted:
            await self._carry(posted, timeout)
        return gone


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError as error:
        raise InvalidValue(f"partitions={text!r} is no number") from error


def _retention(given: float | None, option: str | None) -> float | None:
    if given != DEFAULT:
        seconds = given
    elif option is None:
        seconds = RETENTION
    else:
        try:
            seconds = None if option == "off" else float(option)
        except ValueError as error:
            raise InvalidValue(f"retention={option!r}: use seconds, or off") from error
    if seconds is not None and not seconds > 0:
        raise InvalidValue(f"a retention of {seconds} s is not possible: use more than 0, or None")
    return seconds
