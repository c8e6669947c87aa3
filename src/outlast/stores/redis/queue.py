"""RedisQueue: the queue port in Redis, on the tasks that the store of the same prefix commits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from outlast.errors import Fenced, NotFound, QueueClosed
from outlast.model.claim import Claim
from outlast.model.commit_rules import WakeupKind
from outlast.model.queue_policy import ExpectedPolicy, PolicyChange, QueuePolicy
from outlast.model.run_contents import DeadTask, Delivery, Task
from outlast.model.stats import COUNTED, QueueStats
from outlast.model.times import from_micros, to_micros
from outlast.ports.clock import Clock
from outlast.ports.notifier import Notifier
from outlast.ports.queue import DEFAULT_ATTEMPTS, POLL_SECONDS, Queue, addressed
from outlast.stores.redis import fair_queue, queue_stats
from outlast.stores.redis.claims import distinct_prefixes
from outlast.stores.redis.concurrency_slots import carry_releases_soon, extend, to_wanted
from outlast.stores.redis.keys import TASKS, Layout, framed, of_run
from outlast.stores.redis.location import Location
from outlast.stores.redis.notifier import PubSubConnection, RedisNotifier
from outlast.stores.redis.packing import lease, pack, pack_claim, pack_task
from outlast.stores.redis.session import Call, Server, Session
from outlast.stores.redis.tasks import count_available
from outlast.stores.redis.unpacking import to_dead, to_state

PARTITIONS = 16
WIDTH = 21  # of `sortable`


class RedisQueue(Queue):
    """Named queues in Redis. The store's `queue()` gives the one that shares its tasks; with a URL
    or a client of your own it stands alone, with the options of `RedisStore`."""

    def __init__(
        self,
        redis: str | object,
        *,
        prefix: str = "",
        partitions: int | None = None,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        max_attempts: int = DEFAULT_ATTEMPTS,
        poll: float = POLL_SECONDS,
        allow_eviction: bool = False,
    ) -> None:
        is_borrowed = isinstance(redis, Server)
        if isinstance(redis, Server):
            server = redis
        else:
            place = Location.parse(redis) if isinstance(redis, str) else redis
            options = place.options if isinstance(place, Location) else {}
            clustered = place.is_cluster if isinstance(place, Location) else partitions is not None
            count = partitions or int(options.get("partitions", PARTITIONS if clustered else 1))
            layout = Layout(prefix or options.get("prefix", "outlast"), count, tagged=clustered)
            server = Server(place, layout, clock=clock, allow_eviction=allow_eviction)
        self._own_notifier: RedisNotifier | None = None
        if notifier is None:
            channel = PubSubConnection(server)
            notifier = self._own_notifier = RedisNotifier(channel.publish, channel.listen)
        super().__init__(clock=clock, notifier=notifier, max_attempts=max_attempts, poll=poll)
        self._session = Session(server, QueueClosed, borrowed=is_borrowed)

    async def open(self) -> None:
        await self._session.open()
        if self._own_notifier is not None:
            self._own_notifier.open()

    async def close(self) -> None:
        if self._own_notifier is not None:
            await self._own_notifier.close()
        await self._session.close()
        self.notifier.wake()

    async def enqueue(
        self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0, timeout: float | None = None
    ) -> int:
        tasks = addressed(queue, tasks)
        server = await self._session.server()
        by_part: dict[int, list[Task]] = {}
        for task in tasks:
            part = server.layout.part_of_task(queue, task.run_id)
            by_part.setdefault(part, []).append(task)
        added = 0
        for part, own in by_part.items():
            names = [*TASKS, *(of_run(task.run_id, "tasks") for task in own if task.run_id)]
            args = [pack([pack_task(task) for task in own]), b"%d" % lease(delay)]
            answer = await server.call(Call("enqueue", part, names, args), timeout=timeout)
            added += int(answer[1])
        self.notifier.wake()
        return added

    async def take_many(
        self,
        queues: Collection[str],
        *,
        owner: str,
        visibility: float,
        limit: int,
        timeout: float | None = None,
    ) -> list[Delivery]:
        server = await self._session.server()
        request = fair_queue.TakeRequest(list(queues), owner, visibility, self.max_attempts)
        at = to_micros(self.clock.now())
        return await fair_queue.take(server, request, limit, at=at, timeout=timeout)

    async def ack(self, claim: Claim, *, timeout: float | None = None) -> None:
        await self._settle(claim, {"verb": "ack"}, timeout)
        self.notifier.wake(WakeupKind.TASKS)  # there may be room for another one

    async def nack(
        self,
        claim: Claim,
        *,
        requeue: bool = True,
        delay: float = 0.0,
        drop: bool = False,
        reason: str = "rejected",
        timeout: float | None = None,
    ) -> None:
        request = {
            "verb": "nack",
            "requeue": requeue,
            "drop": drop,
            "delay": lease(delay),
            "reason": reason,
            "attempts": self.max_attempts,
        }
        await self._settle(claim, request, timeout)
        self.notifier.wake()

    async def extend(self, claim: Claim, seconds: float, *, timeout: float | None = None) -> Claim:
        request = {"verb": "extend", "lease": lease(seconds)}
        until = await self._settle(claim, request, timeout, ttl=seconds)
        return msgspec.structs.replace(claim, expires_at=from_micros(int(until)))

    async def len(self, queue: str, *, timeout: float | None = None) -> int:
        return await count_available(await self._session.server(), queue, timeout=timeout)

    async def names(self, *, timeout: float | None = None) -> list[str]:
        server = await self._session.server()
        sets = ("task:free", "task:keyed", "task:held", "dead:order")
        found = [await distinct_prefixes(server, name, timeout) for name in sets]
        return sorted({queue.decode() for own in found for _, queue, _ in own})

    async def dead(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[DeadTask]:
        server = await self._session.server()
        layout, frame = server.layout, framed(queue)
        dead = []
        for part in range(layout.partitions):
            page = (b"[" + frame, b"(" + frame + b"\xff", b"LIMIT", b"0", b"%d" % limit)
            command = (b"ZRANGEBYLEX", layout.key(part, "dead:order"), *page)
            (members,) = await server.commands([(part, command)], timeout=timeout, writes=False)
            if not members:
                continue
            names = [_name_of_dead(member, frame) for member in members]
            asked = [
                (part, (b"HMGET", layout.key(part, "dead:state"), *names)),
                (part, (b"HMGET", layout.key(part, "dead:data"), *names)),
            ]
            states, bodies = await server.commands(asked, timeout=timeout, writes=False)
            dead += [
                to_dead(to_state(state), body)
                for state, body in zip(states, bodies, strict=True)
                if state is not None and body is not None
            ]
        return sorted(dead, key=lambda one: (one.died_at, one.task.id))[:limit]

    async def redrive(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        count = await self._chosen(queue, task_ids, revive=True, timeout=timeout)
        self.notifier.wake()
        return count

    async def purge(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        return await self._chosen(queue, task_ids, revive=False, timeout=timeout)

    async def _chosen(
        self, queue: str, task_ids: Collection[str] | None, *, revive: bool, timeout: float | None
    ) -> int:
        server = await self._session.server()
        request: dict[str, Any] = {"queue": queue, "revive": revive}
        if task_ids is not None:
            request["ids"] = list(task_ids)
        count = 0
        for part in range(server.layout.partitions):
            answer = await server.call(
                Call("redrive", part, TASKS, [pack(request)]), timeout=timeout
            )
            count += int(answer[1])
        return count

    # -- policies -----------------------------------------------------------------------------

    async def _write_policy(
        self,
        queue: str,
        policy: QueuePolicy | None,
        *,
        declared: QueuePolicy | None,
        seen: ExpectedPolicy | None,
        by: str,
        timeout: float | None,
    ) -> bool:
        server = await self._session.server()
        written = await fair_queue.write_policy(
            server, queue, policy, declared, seen, by=by, timeout=timeout
        )
        self.notifier.wake()
        return written

    async def policies(self, *, timeout: float | None = None) -> list[QueuePolicy]:
        return await fair_queue.load_policies(await self._session.server(), timeout=timeout)

    async def policy_changes(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[PolicyChange]:
        server = await self._session.server()
        return await fair_queue.load_changes(server, queue, limit, timeout=timeout)

    async def stats(
        self, queue: str, *, counted: int = COUNTED, timeout: float | None = None
    ) -> QueueStats:
        server = await self._session.server()
        return await queue_stats.load_stats(server, queue, counted, timeout=timeout)

    async def next_ready_at(
        self, queues: Sequence[str], *, timeout: float | None = None
    ) -> datetime | None:
        server = await self._session.server()
        return await queue_stats.next_ready_at(server, queues, timeout=timeout)

    async def _settle(
        self,
        claim: Claim,
        request: dict[str, Any],
        timeout: float | None,
        *,
        ttl: float | None = None,
    ) -> str:
        server = await self._session.server()
        part = server.layout.part_of_task(claim.queue or "", claim.run_id)
        packed = pack_claim(claim) | {"id": claim.task_id or "", "queue": claim.queue or ""}
        names = [*TASKS, *([of_run(claim.run_id, "tasks")] if claim.run_id else [])]
        call = Call("settle_delivery", part, names, [pack({"claim": packed, **request})])
        what, *rest = await server.call(call, timeout=timeout)
        if what == b"slot":
            (ends,) = await extend(server, [to_wanted(rest[0])], ttl, timeout=timeout)
            if ends is None:
                raise Fenced(claim.subject, token=claim.token)
            return await self._settle(claim, {**request, "slot_ends": ends}, timeout)
        if what == b"notfound":
            raise NotFound("task", claim.task_id or "")
        if what == b"fenced":
            raise Fenced(claim.subject, token=claim.token, current=int(rest[0]))
        if rest[1] == b"1":
            await carry_releases_soon(server, [part], timeout=timeout)
        until: str = rest[0].decode()
        return until


def _name_of_dead(member: bytes, frame: bytes) -> bytes:
    start = len(frame) + WIDTH
    return member[start + 8 + int(member[start : start + 8], 16) :]
