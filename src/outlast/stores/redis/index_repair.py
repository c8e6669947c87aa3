"""Reconciling: the indexes held against the records.

Each script updates both atomically, so that they agree, except after manual writes to Redis, or
a backup was put together from parts; then a run cannot be found, or is claimed in vain.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from outlast.model.run import Status
from outlast.stores.redis.concurrency_slots import repair_slots
from outlast.stores.redis.keys import CLAIM_INDEXES, of_run
from outlast.stores.redis.packing import blob, pack
from outlast.stores.redis.session import Call, Server

PAGE = 200
WIDTH = 21  # of `sortable`
FRAMES = {
    "idx:created": 0,
    "idx:updated": 0,
    "idx:workflow": 2,
    "idx:parent": 1,
    "idx:attr": 1,
    "runnable": 1,
    "held": 1,
}
"""Sets by text: how many parts with their lengths stand before the time and the id."""
PLAIN = ("idx:ids", "idx:ended")
STATUSES = tuple(f"idx:status:{status.value}" for status in Status)


async def reconcile(server: Server, *, timeout: float | None) -> int:
    """Mend the indexes of all partitions, and give back slots that nobody has; how many places were
    wrong or missing."""
    mended = 0
    for part in range(server.layout.partitions):
        ids: set[str] = set()
        for name in (*FRAMES, *PLAIN, *STATUSES):
            async for members in _pages(server, part, name, timeout):
                places = [(member, _id_of(name, member)) for member in members]
                ids |= {id for _, id in places}
                mended += await _mend(server, part, [], name, places, timeout)
        mended += await repair_slots(server, part, timeout=timeout)
        known = sorted(ids)
        for start in range(0, len(known), PAGE):
            mended += await _mend(server, part, known[start : start + PAGE], "", [], timeout)
    return mended


async def _pages(
    server: Server, part: int, name: str, timeout: float | None
) -> AsyncIterator[list[bytes]]:
    key, cursor = server.layout.key(part, name), b"0"
    scan = b"SSCAN" if name in STATUSES else b"ZSCAN"
    while True:
        command = (scan, key, cursor, b"COUNT", b"%d" % PAGE)
        ((cursor, found),) = await server.commands([(part, command)], timeout=timeout, writes=False)
        if found and name not in STATUSES:
            found = [one[0] for one in found] if isinstance(found[0], list) else found[::2]
        if found:
            yield found
        if int(cursor) == 0:
            return


def _id_of(name: str, member: bytes) -> str:
    if name not in FRAMES:
        return member.decode()
    start = 0
    for _ in range(FRAMES[name]):
        start += 8 + int(member[start : start + 8], 16)
    return member[start + WIDTH :].decode()


async def _mend(
    server: Server,
    part: int,
    ids: list[str],
    name: str,
    places: list[tuple[bytes, str]],
    timeout: float | None,
) -> int:
    flat = [one for member, id in places for one in (name, blob(member), id)]
    runs = {*ids, *(id for _, id in places)}
    names = [*(of_run(id, "state") for id in runs), *FRAMES, *PLAIN, *STATUSES, *CLAIM_INDEXES]
    call = Call("repair_indexes", part, names, [pack(ids), pack(flat)])
    return int((await server.call(call, timeout=timeout))[1])
