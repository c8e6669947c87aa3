"""Activity states: found by their own ids alone, in whatever partition their run is."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.model.activity import Activity
from outlast.stores.redis.deletions import hidden_among
from outlast.stores.redis.keys import activity_name, of_run
from outlast.stores.redis.packing import pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.unpacking import to_activity

FIELDS = (b"run", b"at", b"bytes")


async def find_activity(
    server: Server, activity_id: str, *, timeout: float | None
) -> Activity | None:
    """The state that was saved last."""
    found = await _everywhere(server, activity_id, timeout)
    hidden = await hidden_among(server, {owner for _, _, owner, _ in found}, timeout=timeout)
    if hidden:
        found = [one for one in found if one[2] not in hidden]
    last = max(found, key=lambda one: one[1], default=None)
    return None if last is None else to_activity(activity_id, last[3])


async def load_activities(server: Server, run_id: str, *, timeout: float | None) -> list[Activity]:
    """The states of a run, by id."""
    layout = server.layout
    part = layout.part_of(run_id)
    if await hidden_among(server, [run_id], timeout=timeout):
        return []
    members = (b"SMEMBERS", layout.key(part, of_run(run_id, "activities")))
    (raw_ids,) = await server.commands([(part, members)], timeout=timeout, writes=False)
    ids = sorted(raw.decode() for raw in raw_ids)
    commands = [(part, (b"HGET", layout.key(part, activity_name(id)), b"bytes")) for id in ids]
    found = await server.commands(commands, timeout=timeout, writes=False) if ids else []
    return [to_activity(id, body) for id, body in zip(ids, found, strict=True) if body is not None]


async def forget_elsewhere(
    server: Server, saved: Sequence[tuple[str, str]], *, timeout: float | None
) -> None:
    """An activity was saved for a run: what a run of another partition had under that id goes."""
    for activity_id, run_id in saved:
        here = server.layout.part_of(run_id)
        for part, _, owner, _ in await _everywhere(server, activity_id, timeout):
            if part != here:
                names = [activity_name(activity_id), of_run(owner, "activities")]
                wish = pack({"id": activity_id, "run": owner})
                await server.call(Call("drop_activity", part, names, [wish]), timeout=timeout)


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
