"""The contents of runs besides events: timers, snapshots, facts, idempotency keys, and activities.

An activity is found by its own id, in the partition of its run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from outlast.model.run_contents import Activity, Entry, Fact, Snapshot, Timer
from outlast.stores.redis.delete import finish_all, hidden_among
from outlast.stores.redis.keys import activity_name, fact_name, key_name, of_run, timer_name
from outlast.stores.redis.packing import due_score, pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.session_store import SessionStore
from outlast.stores.redis.unpacking import to_activity, to_entry, to_snapshot, to_timer

TIMER = (b"run", b"id", b"fire_at", b"fired")


class RedisRunDetails(SessionStore):
    """Contents of runs besides their events."""

    async def timers(self, run_id: str, *, timeout: float | None = None) -> list[Timer]:
        server = await self._session.server()
        layout = server.layout
        part = layout.part_of(run_id)
        if await hidden_among(server, [run_id], timeout=timeout):
            return []
        members = (b"SMEMBERS", layout.key(part, of_run(run_id, "timers")))
        (ids,) = await server.commands([(part, members)], timeout=timeout, writes=False)
        found = await _timers(server, [(part, run_id, id.decode()) for id in ids], timeout)
        return sorted(found, key=lambda timer: (timer.fire_at, timer.id))

    async def due_timers(
        self, *, now: datetime | None = None, limit: int = 100, timeout: float | None = None
    ) -> list[Timer]:
        server = await self._session.server()
        moment = now or await server.now(timeout=timeout)
        layout = server.layout
        await finish_all(server, timeout=timeout)
        due = []
        for part in range(layout.partitions):
            key, until = layout.key(part, "timers:due"), due_score(moment).encode()
            page = (b"ZRANGEBYSCORE", key, b"-inf", until, b"LIMIT", b"0", b"%d" % limit)
            (members,) = await server.commands([(part, page)], timeout=timeout, writes=False)
            timers = await _timers(server, [_place(part, member) for member in members], timeout)
            if len(members) == limit and timers:
                # Where the page was cut, those of the same time are all looked at.
                last = due_score(max(timer.fire_at for timer in timers)).encode()
                same = (b"ZRANGEBYSCORE", key, last, last)
                (more,) = await server.commands([(part, same)], timeout=timeout, writes=False)
                fresh = [member for member in more if member not in set(members)]
                timers += await _timers(server, [_place(part, member) for member in fresh], timeout)
            due += timers
        due = [timer for timer in due if timer.fire_at <= moment and not timer.fired]
        return sorted(due, key=lambda timer: (timer.fire_at, timer.run_id, timer.id))[:limit]

    async def entries(self, run_id: str, *, timeout: float | None = None) -> list[Entry]:
        lines = await self._reads.one(run_id, "entries", b"LRANGE", b"0", b"-1", timeout=timeout)
        return sorted((to_entry(run_id, line) for line in lines), key=lambda one: one.timestamp)

    async def activities(self, run_id: str, *, timeout: float | None = None) -> list[Activity]:
        server = await self._session.server()
        layout = server.layout
        part = layout.part_of(run_id)
        if await hidden_among(server, [run_id], timeout=timeout):
            return []
        members = (b"SMEMBERS", layout.key(part, of_run(run_id, "activities")))
        (raw_ids,) = await server.commands([(part, members)], timeout=timeout, writes=False)
        ids = sorted(raw.decode() for raw in raw_ids)
        commands = [(part, (b"HGET", layout.key(part, activity_name(id)), b"bytes")) for id in ids]
        found = await server.commands(commands, timeout=timeout, writes=False) if ids else []
        return [
            to_activity(id, body) for id, body in zip(ids, found, strict=True) if body is not None
        ]

    async def find_activity(
        self, activity_id: str, *, timeout: float | None = None
    ) -> Activity | None:
        server = await self._session.server()
        found = await _everywhere(server, activity_id, timeout)
        hidden = await hidden_among(server, {owner for _, _, owner, _ in found}, timeout=timeout)
        if hidden:
            found = [one for one in found if one[2] not in hidden]
        last = max(found, key=lambda one: one[1], default=None)
        return None if last is None else to_activity(activity_id, last[3])

    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        value = await self._reads.one(run_id, "snapshot", b"GET", timeout=timeout)
        return None if value is None else to_snapshot(value)

    async def drop_snapshot(self, run_id: str, *, timeout: float | None = None) -> bool:
        server = await self._session.server()
        names = [of_run(run_id, "snapshot"), "idx:snapshots"]
        call = Call("drop_snapshot", server.layout.part_of(run_id), names, [run_id.encode()])
        return bool((await server.call(call, timeout=timeout))[1] == b"1")

    async def snapshot_ids(
        self, *, after: str = "", limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        server = await self._session.server()
        layout = server.layout
        await finish_all(server, timeout=timeout)
        start = b"(" + after.encode() if after else b"-"
        commands = [
            (
                part,
                (
                    *(b"ZRANGEBYLEX", layout.key(part, "idx:snapshots"), start, b"+"),
                    *(b"LIMIT", b"0", b"%d" % limit),
                ),
            )
            for part in range(layout.partitions)
        ]
        found = await server.commands(commands, timeout=timeout, writes=False)
        return sorted(id.decode() for ids in found for id in ids)[:limit]

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        server = await self._session.server()
        layout = server.layout
        if root:
            part = layout.part_of(root)
            command: tuple[bytes, ...]
            command = (b"HGET", layout.key(part, of_run(root, "facts")), hash.encode())
        else:
            part = layout.part_for(hash)
            command = (b"GET", layout.key(part, fact_name(hash)))
        (data,) = await server.commands([(part, command)], timeout=timeout, writes=False)
        return None if data is None else Fact(hash, data, root)

    async def put_fact(self, fact: Fact, *, timeout: float | None = None) -> None:
        server = await self._session.server()
        part = server.layout.part_for(fact.hash)
        command = (b"SET", server.layout.key(part, fact_name(fact.hash)), fact.data)
        await server.commands([(part, command)], timeout=timeout, writes=True)

    async def drop_fact(self, hash: str, *, timeout: float | None = None) -> bool:
        server = await self._session.server()
        part = server.layout.part_for(hash)
        command = (b"DEL", server.layout.key(part, fact_name(hash)))
        (gone,) = await server.commands([(part, command)], timeout=timeout, writes=True)
        return bool(gone)

    async def remember(
        self,
        scope: str,
        key: str,
        value: str,
        *,
        run_id: str | None = None,
        timeout: float | None = None,
    ) -> str | None:
        server = await self._session.server()
        # If the run is in another partition, that one records the ownership
        # first: a key without owner would never be deleted, an owner without key does no harm.
        layout, name = server.layout, key_name(scope, key)
        part = layout.part_for(name)
        home = part if run_id is None else layout.part_of(run_id)
        request: dict[str, str | bool] = {"name": name, "value": value, "is_here": home == part}
        names = [name]
        if run_id is not None:
            request["run"] = run_id
            if home == part:
                names += (of_run(run_id, "keys"), "idx:keyed")
            else:
                await _own(server, home, run_id, f"{part} {name}", is_owned=True, timeout=timeout)
        answer = await server.call(
            Call("remember_key", part, names, [pack(request)]), timeout=timeout
        )
        if answer[0] == b"bound":
            return None
        if run_id is not None and home != part and answer[2].decode() != run_id:
            await _own(server, home, run_id, f"{part} {name}", is_owned=False, timeout=timeout)
        bound: str = answer[1].decode()
        return bound

    async def recall(self, scope: str, key: str, *, timeout: float | None = None) -> str | None:
        server = await self._session.server()
        name = key_name(scope, key)
        part = server.layout.part_for(name)
        command = (b"HMGET", server.layout.key(part, name), b"value", b"run")
        ((value, owner),) = await server.commands([(part, command)], timeout=timeout, writes=False)
        if value is None:
            return None
        runs = [] if owner is None else [owner.decode()]
        return None if await hidden_among(server, runs, timeout=timeout) else value.decode()


def _place(part: int, member: bytes) -> tuple[int, str, str]:
    run_id, _, id = member.decode().partition(":")  # the id of a run has no colon
    return part, run_id, id


async def _timers(
    server: Server, places: list[tuple[int, str, str]], timeout: float | None
) -> list[Timer]:
    layout = server.layout
    commands = [
        (part, (b"HMGET", layout.key(part, timer_name(run_id, id)), *TIMER))
        for part, run_id, id in places
    ]
    found = await server.commands(commands, timeout=timeout, writes=False) if commands else []
    return [to_timer(fields) for fields in found if fields[0] is not None]


async def _own(
    server: Server, home: int, run_id: str, member: str, *, is_owned: bool, timeout: float | None
) -> None:
    request = pack({"run": run_id, "member": member, "is_owned": is_owned})
    names = [of_run(run_id, "keys"), "idx:keyed"]
    await server.call(Call("set_key_owner", home, names, [request]), timeout=timeout)


FIELDS = (b"run", b"at", b"bytes")


async def forget_elsewhere(
    server: Server, saved: Sequence[tuple[str, str]], *, timeout: float | None
) -> None:
    """After an activity was saved for a run: delete the state that a run of another partition had under that id."""
    for activity_id, run_id in saved:
        here = server.layout.part_of(run_id)
        for part, _, owner, _ in await _everywhere(server, activity_id, timeout):
            if part != here:
                names = [activity_name(activity_id), of_run(owner, "activities")]
                request = pack({"id": activity_id, "run": owner})
                await server.call(Call("drop_activity", part, names, [request]), timeout=timeout)


async def _everywhere(
    server: Server, activity_id: str, timeout: float | None
) -> list[tuple[int, int, str, bytes]]:
    """Partition, time of saving, run, bytes: of each partition that has it."""
    layout = server.layout
    commands = [
        (part, (b"HMGET", layout.key(part, activity_name(activity_id)), *FIELDS))
        for part in range(layout.partitions)
    ]
    found = await server.commands(commands, timeout=timeout, writes=False)
    return [
        (part, int(at), run.decode(), body)
        for part, (run, at, body) in enumerate(found)
        if run is not None
    ]
