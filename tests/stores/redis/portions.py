"""Trees that are deleted in portions, and processes that die between two of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from msgspec import Raw

from outlast.model import Commit, Fact, Item, Run, Send, Start, Task, Timer
from outlast.model.times import NOW
from outlast.stores.redis import RedisStore, delete, session
from outlast.stores.redis.packing import pack
from outlast.stores.redis.session import Call
from outlast.testkit.conformance.scenario import begin, done, events

FACT = Fact.of(b"a fact of the tree")


@contextlib.contextmanager
def portions_of(size: int, *, large: int) -> Iterator[None]:
    """Scripts that remove so many runs at once, and take a tree with more than `large` descendants for
    a large one."""
    part = session._part

    def smaller(name: str) -> str:
        text = part(name)
        text = text.replace("local PORTION = 200", f"local PORTION = {size}")
        return text.replace("local LARGE = PORTION", f"local LARGE = {large}")

    def forget() -> None:
        for cached in (session.script, session.all_scripts, part):
            cached.cache_clear()

    forget()
    session._part = smaller  # type: ignore[assignment]
    try:
        yield
    finally:
        session._part = part
        forget()


async def plant(store: RedisStore, root: str, children: int) -> list[str]:
    """A run with children that each own something; their ids. Each second one has a child of its own."""
    await begin(store, root, runnable_at=NOW)
    ids = [f"{root}~{n:03}" for n in range(children)]
    starts = tuple(Start(Run(id=id, parent=root, runnable_at=NOW), events(id, 1)) for id in ids)
    await done(store, Commit(run_id=root, starts=starts, facts=(FACT,)))
    now = await store.now()
    for id in ids:
        own = (Start(Run(id=f"{id}~x", parent=id)),) if id[-1] in "02468" else ()
        timers = (Timer(run_id=id, id="t", fire_at=now),)
        tasks = (Task(id="task", run_id=id),)
        await done(store, Commit(run_id=id, starts=own, timers=timers, tasks=tasks))
        await store.remember("start", f"key of {id}", "value", run_id=id)
    sends = [Send(run_id=id, item=Item(kind="signal", name="s", data=Raw(b"1"))) for id in ids]
    await store.send(sends)
    return ids


async def delete_and_die(store: RedisStore, root: str, *, portions: int = 0) -> None:
    """Delete a large tree, and die after so many portions."""
    server = await store._session.server()
    call = delete._call(server, root, {"id": root, "nonce": "n"})
    answer = await server.call(call, timeout=None)
    assert answer[0] == b"marked"
    await remove(store, root, portions)


async def remove(store: RedisStore, root: str, portions: int) -> None:
    """Remove so many portions of what is below a root."""
    server = await store._session.server()
    part = server.layout.part_of(root)
    for _ in range(portions):
        call = Call("delete_portion", part, ["idx:ids", "idx:keyed"], [pack({"id": root})])
        assert (await server.call(call, timeout=None))[0] == b"more"


async def left_of(store: RedisStore, root: str) -> set[str]:
    """The names of the keys that belong to runs of a tree, in Redis itself."""
    server = await store._session.server()
    layout = server.layout
    found = set()
    for part in range(layout.partitions):
        cursor = b"0"
        while True:
            command = (b"SCAN", cursor, b"MATCH", layout.key(part, "*"), b"COUNT", b"1000")
            ((cursor, keys),) = await server.commands([(part, command)], timeout=None, writes=False)
            size = len(layout.prefixes[part])
            found |= {key[size:].decode() for key in keys}
            if int(cursor) == 0:
                break
    return {name for name in found if f":{root}~" in name or f":{root}:" in name}


async def marks_of(store: RedisStore) -> list[bytes]:
    """What partitions say is being deleted."""
    server = await store._session.server()
    layout = server.layout
    commands = [
        (part, (b"HGET", layout.key(part, "meta"), b"deleting"))
        for part in range(layout.partitions)
    ]
    replies = await server.commands(commands, timeout=None, writes=False)
    return [reply for reply in replies if reply is not None]
