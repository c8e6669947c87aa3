"""Deletions that are under way: what is below the root of a large tree goes in portions.

One script removes the root of a tree and marks what is below it (lua/lib/marks.lua), so the tree is gone for
all at that moment: scripts act on none of its runs, and reads do not show them. Its runs then go portion by
portion, by the process that has deleted it; after a crash by the next call that needs an id below the
root, or by a worker that looks for work::

    delete ──▶ root gone, mark set ──▶ 200 runs gone ──▶ … ──▶ mark gone
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from outlast.errors import StoreFault, TryAgain
from outlast.model.ids import SEPARATOR
from outlast.stores.redis.keys import of_run
from outlast.stores.redis.link import Command
from outlast.stores.redis.session import Server

PAGE = 500
OPEN_SHOWN = 100
FIELDS = (b"status", b"wait_kind", b"commit")

Marks = dict[str, dict[str, str]]
"""By the root of a tree: what is being deleted below it."""

_unpack = msgspec.msgpack.Decoder(Marks).decode


def marks_command(server: Server, part: int) -> tuple[int, Command]:
    """Reads the marks of a partition. Read before what they may hide, they hide all that is gone."""
    return part, (b"HGET", server.layout.key(part, "meta"), b"deleting")


def to_marks(reply: Any) -> Marks:
    """The marks of a partition, as Redis has them."""
    return _unpack(reply) if isinstance(reply, bytes) else {}


def hidden_by(marks: Marks, run_id: str) -> bool:
    """Whether a run is deleted, and still there."""
    return bool(marks) and bool(_roots_above(run_id, marks, "all"))


async def hidden_among(
    server: Server, run_ids: Iterable[str], *, timeout: float | None
) -> set[str]:
    """Those of the runs that are deleted, and still there. Asked before they are read."""
    layout = server.layout
    children = {id: layout.part_of(id) for id in run_ids if SEPARATOR in id}
    parts = sorted(set(children.values()))
    if not parts:
        return set()
    commands = [marks_command(server, part) for part in parts]
    replies = await server.commands(commands, timeout=timeout, writes=False)
    marks = {part: to_marks(reply) for part, reply in zip(parts, replies, strict=True)}
    for id, part in children.items():
        await finish_above(server, marks[part], id, timeout=timeout)
    return {id for id, part in children.items() if hidden_by(marks[part], id)}


async def finish_above(server: Server, marks: Marks, run_id: str, *, timeout: float | None) -> bool:
    """Finish where only runs that have ended go: a run itself has to be read to know whether it does.
    Whether there was any such."""
    roots = _roots_above(run_id, marks, "ended") if marks else []
    for root in roots:
        await server.finish_deletion(server.layout.part_of(root), root, timeout=timeout)
        del marks[root]
    return bool(roots)


def _roots_above(run_id: str, marks: Marks, kind: str) -> list[str]:
    names = run_id.split(SEPARATOR)
    above = (SEPARATOR.join(names[:n]) for n in range(1, len(names)))
    return [root for root in above if marks.get(root, {}).get("kind") == kind]


async def finish_or_leave(server: Server, root: str, *, timeout: float | None) -> None:
    """Remove what is left below a root, after the write that has decided it: what cannot be removed now
    goes later."""
    with suppress(TryAgain, StoreFault):
        await server.finish_deletion(server.layout.part_of(root), root, timeout=timeout)


async def finish_all(server: Server, *, timeout: float | None) -> None:
    """Finish what other processes have left."""
    parts = range(server.layout.partitions)
    commands = [marks_command(server, part) for part in parts]
    replies = await server.commands(commands, timeout=timeout, writes=False)
    for part, reply in zip(parts, replies, strict=True):
        for root in to_marks(reply):
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
        page = (b"ZRANGEBYLEX", key, first.encode(), end, b"LIMIT", b"0", b"%d" % PAGE)
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
