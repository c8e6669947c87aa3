"""Deletion of runs, and retention, which deletes runs that ended long ago.

One script deletes the root of a tree and, if the tree is large, records a deletion of its descendants
(lua/lib/deletions.lua). From then on the tree is gone: scripts act on none of its runs, and reads do not return them.
The deleting process then deletes the descendants in portions; after a crash the next call that needs an id of the
tree continues, or a worker that looks for work::

    delete ──▶ root deleted, deletion recorded ──▶ 200 runs deleted ──▶ … ──▶ deletion removed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from outlast.errors import Busy, RunsOpen, StoreFault, TryAgain
from outlast.model.ids import SEPARATOR, new_id
from outlast.model.run import MOVING, TERMINAL, Status
from outlast.model.run_contents import Send
from outlast.model.times import to_micros
from outlast.stores.redis.connection import Command
from outlast.stores.redis.keys import OWNED, of_run
from outlast.stores.redis.packing import pack, pack_send
from outlast.stores.redis.session import Call, Server

EXPIRE_PAGE = 200
CHECKS = 20


async def delete(
    server: Server,
    run_id: str,
    uid: str | None,
    *,
    only_ended: bool,
    open_at: Mapping[str, str | None],
    sends: Sequence[Send],
    timeout: float | None,
) -> tuple[bool, set[int]]:
    """Remove a tree, or if a life is named, only if it is that of its root, and deliver items; whether its
    root was there, and the partitions that have something to relay. With `only_ended`, `RunsOpen` if a run
    of it has not ended and is not one that `open_at` names with its last commit."""
    request: dict[str, Any] = {"id": run_id} if uid is None else {"id": run_id, "uid": uid}
    if only_ended:
        request["only_ended"] = True
        request["open_at"] = {id: False if at is None else at for id, at in open_at.items()}
    if sends:
        part = server.layout.part_of(run_id)
        request["sends"] = [pack_send(send, server.layout, part) for send in sends]
    answer = await _remove(server, run_id, request, timeout, open_at)
    if answer[0] == b"open":
        raise RunsOpen(run_id, [id.decode() for id in answer[1]])
    if answer[0] == b"kept":
        return False, set()
    return answer[1] == b"1", _posted(server, run_id, answer)


async def expire(
    server: Server,
    before: datetime,
    *,
    status: Collection[Status],
    limit: int,
    timeout: float | None,
) -> tuple[list[str], set[int]]:
    """Remove trees that ended before a time, the oldest first; the ids of their roots, and the
    partitions that have something to relay."""
    gone: list[str] = []
    posted: set[int] = set()
    kept = [0] * server.layout.partitions
    request: dict[str, Any] = {"before": str(to_micros(before))}
    if status:
        request["statuses"] = [one.value for one in status]
    while len(gone) < limit:
        ended = await _ended(server, before, kept, timeout)
        if not ended:
            break
        for _, part, run_id in sorted(ended):
            if len(gone) == limit:
                break
            answer = [b"kept"]
            if SEPARATOR not in run_id and not await _is_needed(server, run_id, timeout):
                answer = await _remove(server, run_id, {"id": run_id, **request}, timeout)
            if answer[0] == b"done":
                gone.append(run_id)
                posted |= _posted(server, run_id, answer)
            else:
                kept[part] += 1
    return sorted(gone), posted


async def _remove(
    server: Server,
    run_id: str,
    request: dict[str, Any],
    timeout: float | None,
    open_at: Mapping[str, str | None] | None = None,
) -> list[Any]:
    """What became of a tree. A large one goes in portions, once its root is gone and what is below it is
    marked; where all runs must have ended, that is read before, in portions too."""
    request = {**request, "nonce": new_id()}
    for _ in range(CHECKS):
        answer: list[Any] = await server.call(_call(server, run_id, request), timeout=timeout)
        if answer[0] == b"marked":
            await finish_or_leave(server, run_id, timeout=timeout)
            return [b"done", answer[1], b"1"]
        is_root = answer[0] == b"open" and answer[1] == [run_id.encode()]
        if answer[0] != b"check" and not is_root:
            return answer
        ended = {status.value.encode() for status in TERMINAL}
        open = await open_below(
            server, run_id, is_over=ended, open_at=open_at or {}, timeout=timeout
        )
        if open or is_root:
            return [b"open", [*(answer[1] if is_root else ()), *(id.encode() for id in open)]]
        request["checked"] = answer[1].decode()
    raise Busy(f"the runs below {run_id!r} change all the time: nothing was removed, try again")


async def _ended(
    server: Server, before: datetime, skipped: list[int], timeout: float | None
) -> list[tuple[int, int, str]]:
    """The next runs that ended before a time: when, partition, id."""
    layout = server.layout
    commands = [
        (
            part,
            (
                *(b"ZRANGEBYSCORE", layout.key(part, "idx:ended"), b"-inf"),
                *(b"(%d" % to_micros(before), b"WITHSCORES", b"LIMIT"),
                *(b"%d" % skipped[part], b"%d" % EXPIRE_PAGE),
            ),
        )
        for part in range(layout.partitions)
    ]
    found = []
    for part, reply in enumerate(await server.commands(commands, timeout=timeout, writes=False)):
        flat = (
            [one for pair in reply for one in pair]
            if reply and isinstance(reply[0], list)
            else reply
        )
        for id, score in zip(flat[::2], flat[1::2], strict=True):
            found.append((int(float(score)), part, id.decode()))
    return found


async def _is_needed(server: Server, run_id: str, timeout: float | None) -> bool:
    """Whether a run has a parent elsewhere that lives and may still ask for its result."""
    layout = server.layout
    part = layout.part_of(run_id)
    command = (b"HGET", layout.key(part, of_run(run_id, "state")), b"parent")
    (parent,) = await server.commands([(part, command)], timeout=timeout, writes=False)
    if parent is None:
        return False
    part = layout.part_of(parent.decode())
    key = layout.key(part, of_run(parent.decode(), "state"))
    fields = (b"HMGET", key, b"status", b"wait_kind")
    ((status, kind),) = await server.commands([(part, fields)], timeout=timeout, writes=False)
    if status is None:
        return False
    is_moving = status == b"cancelled" and kind == MOVING.encode()
    return is_moving or status.decode() not in TERMINAL


def _call(server: Server, run_id: str, request: dict[str, Any]) -> Call:
    names = [of_run(run_id, what) for what in OWNED]
    names += ("idx:ids", "idx:keyed", "idx:created", "idx:updated", "idx:snapshots")
    return Call("delete", server.layout.part_of(run_id), names, [pack(request)])


def _posted(server: Server, run_id: str, answer: list[Any]) -> set[int]:
    return {server.layout.part_of(run_id)} if answer[2] == b"1" else set()


DELETE_PAGE = 500
OPEN_SHOWN = 100
FIELDS = (b"status", b"wait_kind", b"commit")

Deletions = dict[str, dict[str, str]]
"""By the root of a tree: what is being deleted below it."""

_unpack = msgspec.msgpack.Decoder(Deletions).decode


def deletions_command(server: Server, part: int) -> tuple[int, Command]:
    """Reads the deletions of a partition. Read before what they may hide, they hide all that is gone."""
    return part, (b"HGET", server.layout.key(part, "meta"), b"deleting")


def to_deletions(reply: Any) -> Deletions:
    """The deletions of a partition, as Redis has them."""
    return _unpack(reply) if isinstance(reply, bytes) else {}


def hidden_by(deletions: Deletions, run_id: str) -> bool:
    """Whether a run is deleted, and still there."""
    return bool(deletions) and bool(_roots_above(run_id, deletions, "all"))


async def hidden_among(
    server: Server, run_ids: Iterable[str], *, timeout: float | None
) -> set[str]:
    """Those of the runs that are deleted, and still there. Asked before they are read."""
    layout = server.layout
    children = {id: layout.part_of(id) for id in run_ids if SEPARATOR in id}
    parts = sorted(set(children.values()))
    if not parts:
        return set()
    commands = [deletions_command(server, part) for part in parts]
    replies = await server.commands(commands, timeout=timeout, writes=False)
    deletions = {part: to_deletions(reply) for part, reply in zip(parts, replies, strict=True)}
    for id, part in children.items():
        await finish_above(server, deletions[part], id, timeout=timeout)
    return {id for id, part in children.items() if hidden_by(deletions[part], id)}


async def finish_above(
    server: Server, deletions: Deletions, run_id: str, *, timeout: float | None
) -> bool:
    """Finish where only runs that have ended go: a run itself has to be read to know whether it does.
    Whether there was any such."""
    roots = _roots_above(run_id, deletions, "ended") if deletions else []
    for root in roots:
        await server.finish_deletion(server.layout.part_of(root), root, timeout=timeout)
        del deletions[root]
    return bool(roots)


def _roots_above(run_id: str, deletions: Deletions, kind: str) -> list[str]:
    names = run_id.split(SEPARATOR)
    above = (SEPARATOR.join(names[:n]) for n in range(1, len(names)))
    return [root for root in above if deletions.get(root, {}).get("kind") == kind]


async def finish_or_leave(server: Server, root: str, *, timeout: float | None) -> None:
    """Remove what is left below a root, after the write that has decided it: what cannot be removed now
    goes later."""
    with suppress(TryAgain, StoreFault):
        await server.finish_deletion(server.layout.part_of(root), root, timeout=timeout)


async def finish_all(server: Server, *, timeout: float | None) -> None:
    """Finish what other processes have left."""
    parts = range(server.layout.partitions)
    commands = [deletions_command(server, part) for part in parts]
    replies = await server.commands(commands, timeout=timeout, writes=False)
    for part, reply in zip(parts, replies, strict=True):
        for root in to_deletions(reply):
            await server.finish_deletion(part, root, timeout=timeout)


async def open_below(
    server: Server,
    root: str,
    *,
    is_over: Collection[bytes],
    open_at: Mapping[str, str | None],
    timeout: float | None,
) -> list[str]:
    """Some descendants of a run that have not ended, or are being moved, without those that `open_at` names
    with their last commit."""
    layout, part = server.layout, server.layout.part_of(root)
    key, first, end = layout.key(part, "idx:ids"), f"({root}{SEPARATOR}", f"({root}\x7f".encode()
    open: list[str] = []
    while len(open) < OPEN_SHOWN:
        page = (b"ZRANGEBYLEX", key, first.encode(), end, b"LIMIT", b"0", b"%d" % DELETE_PAGE)
        (ids,) = await server.commands([(part, page)], timeout=timeout, writes=False)
        if not ids:
            break
        names = [id.decode() for id in ids]
        first = f"({names[-1]}"
        states = [
            (part, (b"HMGET", layout.key(part, of_run(id, "state")), *FIELDS)) for id in names
        ]
        found = await server.commands(states, timeout=timeout, writes=False)
        open += [
            id
            for id, (status, wait, commit) in zip(names, found, strict=True)
            if status is not None
            and (status not in is_over or (status == b"cancelled" and wait == b"moving"))
            and open_at.get(id, "unseen") not in ((commit or b"").decode(), None)
        ]
    return open[:OPEN_SHOWN]
