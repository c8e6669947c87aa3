"""What concerns a store as a whole: how many runs there are, which workers live, and what a move to
another store has to know.

workers  HASH  owner → msgpack of when it started, was seen and is due, and its own word. Partition 0
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from outlast.model.claim import check_ttl
from outlast.model.ids import check_id, check_name
from outlast.model.json import from_json, to_json
from outlast.model.run import Status
from outlast.model.run_contents import BoundKey, HeldTask, RunContents
from outlast.model.task import DeadTask, Task
from outlast.model.times import from_micros, to_micros
from outlast.model.validation import check_after, check_worker
from outlast.model.worker import REMEMBERED, Worker
from outlast.stores.redis.claims import distinct_prefixes
from outlast.stores.redis.delete import finish_all
from outlast.stores.redis.keys import framed, key_of, of_run
from outlast.stores.redis.optional import RedisOptional
from outlast.stores.redis.session import Server
from outlast.stores.redis.unpacking import to_dead, to_state, to_task

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(tuple[int, int, int, bytes]).decode


class RedisRegistry(RedisOptional):
    """Counts, workers and moves."""

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        # The index is sorted: Redis knows the places of both ends of a file, and so their distance.
        server = await self._session.server()
        await finish_all(server, timeout=timeout)
        files = [
            (part, workflow, status)
            for part, workflow, _ in await distinct_prefixes(server, "idx:workflow", timeout)
            for status in Status
        ]
        commands = []
        for part, workflow, status in files:
            file = framed(workflow) + framed(status.value)
            key = server.layout.key(part, "idx:workflow")
            commands.append((part, (b"ZLEXCOUNT", key, b"[" + file, b"(" + file + b"\xff")))
        found: dict[tuple[str, Status], int] = {}
        numbers = await server.commands(commands, timeout=timeout, writes=False) if files else []
        for (_, workflow, status), number in zip(files, numbers, strict=True):
            if number:
                pair = workflow.decode(), status
                found[pair] = found.get(pair, 0) + int(number)
        return found

    # -- workers ------------------------------------------------------------------------------

    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        check_worker(worker)
        check_ttl(ttl)
        server = await self._session.server()
        now = await server.now(timeout=timeout)
        known = {one.owner: one for one in await self.workers(timeout=timeout)}
        mine = known.pop(worker.owner, None)
        started_at = now if mine is None else mine.started_at
        until = now + timedelta(seconds=ttl)
        word = _pack((*map(to_micros, (started_at, now, until)), to_json(worker)))
        key = server.layout.key(0, "workers")
        commands: list[tuple[int, tuple[bytes, ...]]] = [
            (0, (b"HSET", key, worker.owner.encode(), word))
        ]
        commands += [
            (0, (b"HDEL", key, one.owner.encode()))
            for one in known.values()
            if one.until < now - REMEMBERED
        ]
        await server.commands(commands, timeout=timeout, writes=True)

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        check_name(owner, "owner")
        server = await self._session.server()
        command = (b"HDEL", server.layout.key(0, "workers"), owner.encode())
        (gone,) = await server.commands([(0, command)], timeout=timeout, writes=True)
        return bool(gone)

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        server = await self._session.server()
        command = (b"HVALS", server.layout.key(0, "workers"))
        (words,) = await server.commands([(0, command)], timeout=timeout, writes=False)
        return sorted(map(_worker, words), key=lambda one: (one.started_at, one.owner))

    # -- transfer to another store --------------------------------------------------------------

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:
        check_id(run_id, child=True)
        server = await self._session.server()
        if await self.find_one(run_id, timeout=timeout) is None:
            return RunContents()
        layout, part = server.layout, server.layout.part_of(run_id)
        asked = [
            (part, (command, layout.key(part, of_run(run_id, what))))
            for command, what in (
                (b"HGETALL", "items"),
                (b"SMEMBERS", "tasks"),
                (b"SMEMBERS", "keys"),
                (b"HKEYS", "facts"),
            )
        ]
        items, tasks, keys, facts = await server.commands(asked, timeout=timeout, writes=False)
        numbers = (
            items if isinstance(items, dict) else dict(zip(items[::2], items[1::2], strict=True))
        )
        living, holdings, dead = await _tasks(server, part, list(tasks), timeout)
        return RunContents(
            receipts=tuple(id.decode() for id in sorted(numbers, key=lambda id: int(numbers[id]))),
            tasks=living,
            holdings=holdings,
            dead=dead,
            keys=await _keys(server, run_id, sorted(keys), timeout),
            facts=tuple(sorted(hash.decode() for hash in facts)),
        )

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        check_after(above)
        # Acknowledged to every script from now on, which writes down what it gave out.
        (await self._session.server()).saw_token(above)


def _worker(word: bytes) -> Worker:
    started_at, seen_at, until, data = _unpack(word)
    return msgspec.structs.replace(
        from_json(data, Worker, where="the word of a worker"),
        started_at=from_micros(started_at),
        seen_at=from_micros(seen_at),
        until=from_micros(until),
    )


async def _tasks(
    server: Server, part: int, names: list[bytes], timeout: float | None
) -> tuple[tuple[Task, ...], tuple[HeldTask, ...], tuple[DeadTask, ...]]:
    if not names:
        return (), (), ()
    asked = [
        (part, (b"HMGET", server.layout.key(part, what), *names))
        for what in ("task:state", "task:data", "dead:state", "dead:data")
    ]
    found = await server.commands(asked, timeout=timeout, writes=False)
    living, bodies, dead, dead_bodies = found
    states = [
        (to_state(state), body)
        for state, body in zip(living, bodies, strict=True)
        if state is not None and body is not None
    ]
    states.sort(key=lambda one: int(one[0]["order"]))
    holdings = tuple(
        HeldTask(
            state["id"],
            state["queue"],
            state["owner"],
            from_micros(int(state["until"])) if state.get("until") else None,
        )
        for state, _ in states
        if state.get("owner") is not None
    )
    gone = tuple(
        to_dead(to_state(state), body)
        for state, body in zip(dead, dead_bodies, strict=True)
        if state is not None and body is not None
    )
    return tuple(to_task(state, body) for state, body in states), holdings, gone


async def _keys(
    server: Server, run_id: str, members: list[bytes], timeout: float | None
) -> tuple[BoundKey, ...]:
    places = []
    for member in members:
        part, _, name = member.decode().partition(" ")
        places.append((int(part), name))
    commands = [
        (part, (b"HMGET", server.layout.key(part, name), b"value", b"run")) for part, name in places
    ]
    found = await server.commands(commands, timeout=timeout, writes=False) if commands else []
    return tuple(
        sorted(
            BoundKey(*key_of(name), value.decode())
            for (_, name), (value, owner) in zip(places, found, strict=True)
            # An owner without the key: whoever bound it was killed before, or somebody was first.
            if value is not None and owner == run_id.encode()
        )
    )
