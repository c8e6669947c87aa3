"""What a move of runs to another store needs: the contents of a run, and tokens above those of the source."""

from __future__ import annotations

from outlast.model.run_contents import BoundKey, DeadTask, HeldTask, RunContents, Task
from outlast.model.times import from_micros
from outlast.stores.redis.keys import key_of, of_run
from outlast.stores.redis.session import Server
from outlast.stores.redis.session_store import SessionStore
from outlast.stores.redis.unpacking import to_dead, to_state, to_task


class RedisTransfer(SessionStore):
    """The contents of a run that a commit does not read back."""

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:
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
        # A floor for the tokens of all later scripts, which store what they give out.
        (await self._session.server()).saw_token(above)


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
            # An owner without the key: the binding process crashed before, or another one was first.
            if value is not None and owner == run_id.encode()
        )
    )
