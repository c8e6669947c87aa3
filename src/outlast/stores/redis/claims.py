"""Claims on runs and tasks: candidates come from the indexes, the script decides.

A claimer reads the claim indexes of all partitions, merges the candidates, and asks the script for the runs that
are due longest. A run that another claimer took is not returned; then it reads the indexes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from outlast.errors import TryAgain
from outlast.model.claim import Claim, ClaimedRun
from outlast.model.times import from_micros, to_micros
from outlast.ports.store import readable
from outlast.stores.redis.concurrency_slots import (
    SlotRequest,
    carry_releases_soon,
    extend,
    to_wanted,
)
from outlast.stores.redis.keys import CLAIM_INDEXES, TASKS, framed, of_run, sortable
from outlast.stores.redis.packing import lease, pack, pack_claim
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.unpacking import to_run

MAX_SCANS = 20
TRIED = 200
DUE = 21  # digits of `sortable`


class ClaimRequest(NamedTuple):
    """Which runs a claimer wants."""

    owner: str
    ttl: float
    limit: int
    workflows: Collection[str] | None
    run_ids: Collection[str] | None
    code: str | None = None


class Candidate(NamedTuple):
    """A run that may be claimed. Sorts by how long it is due."""

    due: bytes
    id: str


async def claim_runs(
    server: Server, request: ClaimRequest, *, timeout: float | None
) -> list[ClaimedRun]:
    """Claim up to `limit` runs, longest due first. The timeout covers all rounds: a call that times out waits for
    the response of its last script."""
    clock = asyncio.get_running_loop().time
    deadline = None if timeout is None else clock() + timeout

    def left() -> float | None:
        return None if deadline is None else deadline - clock()

    claimed: list[ClaimedRun] = []
    if request.run_ids is not None:
        named = await _by_name(server, request.run_ids, left())
        return await _claim(server, request, named, request.limit, left())
    refused: set[str] = set()  # runs that another claimer took, or that this code rejected
    for look in range(MAX_SCANS):
        wanted = request.limit - len(claimed)
        # Each scan tries more: claimable runs may come after many that this code rejected.
        tried = min(wanted << look, max(wanted, TRIED))
        try:
            seen = await _scan_indexes(server, request, tried + len(refused), left())
            found = sorted(one for one in seen if one.id not in refused)[:tried]
            if not found:
                break
            got = await _claim(server, request, [one.id for one in found], wanted, left())
        except TryAgain:
            if claimed:
                break  # without the response the claimed runs would stay idle until lease expiry
            raise
        claimed += got
        refused.update({one.id for one in found} - {one.run.id for one in got})
        if len(claimed) == request.limit or len(got) == len(found) < wanted:
            break
    return claimed


async def _by_name(server: Server, run_ids: Collection[str], timeout: float | None) -> list[str]:
    """Those ids in the order in which they are due."""
    ids = sorted(set(run_ids))
    layout = server.layout
    commands = [
        (part, (b"HGET", layout.key(part, of_run(id, "state")), b"runnable"))
        for id in ids
        for part in [layout.part_of(id)]
    ]
    due = await server.commands(commands, timeout=timeout, writes=False) if len(ids) > 1 else [b""]
    return [id for _, id in sorted((int(at or 0), id) for at, id in zip(due, ids, strict=False))]


async def _scan_indexes(
    server: Server, request: ClaimRequest, limit: int, timeout: float | None
) -> list[Candidate]:
    """Candidates in the claim indexes: of each workflow those due longest, and all with an expired lease."""
    layout = server.layout
    now = to_micros(await server.now(timeout=timeout))
    workflows = request.workflows
    parts: list[tuple[int, bytes]] = []
    if workflows is not None:
        frames = [framed(name) for name in workflows]
        parts = [(part, frame) for part in range(layout.partitions) for frame in frames]
    else:
        parts = [
            (part, framed(frame))
            for part, frame, _ in await distinct_prefixes(server, "runnable", timeout)
        ]
    commands: list[tuple[int, tuple[bytes, ...]]] = [
        (
            part,
            (
                *(b"ZRANGEBYLEX", layout.key(part, "runnable"), b"[" + frame),
                *(b"[" + frame + sortable(now) + b"\xff", b"LIMIT", b"0", b"%d" % limit),
            ),
        )
        for part, frame in parts
    ]
    commands += [
        (part, (b"ZRANGEBYSCORE", layout.key(part, "held"), b"-inf", b"%d" % now))
        for part in range(layout.partitions)
    ]
    known = None if workflows is None else {name.encode() for name in workflows}
    found = []
    for members in await server.commands(commands, timeout=timeout, writes=False):
        for member in members:
            size = 8 + int(member[:8], 16)
            if known is None or member[8:size] in known:
                end = size + DUE
                found.append(Candidate(member[size:end], member[end:].decode()))
    return found


async def distinct_prefixes(
    server: Server, name: str, timeout: float | None
) -> list[tuple[int, bytes, bytes]]:
    """The distinct first parts in a set of each partition: partition, part, first member."""
    calls = [
        Call("distinct_prefixes", part, [name], [pack([name])])
        for part in range(server.layout.partitions)
    ]
    answers = await server.calls(calls, timeout=timeout, writes=False)
    found = []
    for part, answer in enumerate(answers):
        if isinstance(answer, Exception):
            raise server.fault(answer)
        found += [(part, frame, member) for frame, member in answer]
    return found


async def _claim(
    server: Server, request: ClaimRequest, ids: Sequence[str], limit: int, timeout: float | None
) -> list[ClaimedRun]:
    by_part: dict[int, list[str]] = {}
    for id in ids:
        by_part.setdefault(server.layout.part_of(id), []).append(id)
    calls = [_claim_call(request, part, own, limit) for part, own in by_part.items()]
    claimed: dict[str, ClaimedRun] = {}
    if request.run_ids is None and limit < len(ids):
        for part, own in by_part.items():
            if len(claimed) < limit:
                call = _claim_call(request, part, own, limit - len(claimed))
                claimed |= _claimed(request, await server.call(call, timeout=timeout))
    elif limit < len(ids):
        # Partition by partition, in the order of the runs, to claim no more than wanted.
        for id in ids:
            if len(claimed) < limit:
                call = _claim_call(request, server.layout.part_of(id), [id], 1)
                claimed |= _claimed(request, await server.call(call, timeout=timeout))
    else:
        for answer in await server.calls(calls, timeout=timeout):
            if isinstance(answer, Exception):
                raise server.fault(answer)
            claimed |= _claimed(request, answer)
    for one in claimed.values():
        server.saw_token(one.claim.token)
    return [claimed[id] for id in ids if id in claimed]


def _claim_call(request: ClaimRequest, part: int, ids: Sequence[str], limit: int) -> Call:
    packed: dict[str, Any] = {
        "ids": list(ids),
        "owner": request.owner,
        "lease": lease(request.ttl),
        "limit": limit,
        "due": request.run_ids is None,
    }
    if request.workflows is not None:
        packed["workflows"] = list(request.workflows)
    if request.code is not None and request.run_ids is None:
        packed["code"] = request.code
    names = ["token", *CLAIM_INDEXES, *(of_run(id, "state") for id in ids)]
    return Call("claim_runs", part, names, [pack(packed)])


def _claimed(request: ClaimRequest, answer: list[Any]) -> dict[str, ClaimedRun]:
    _, now, found = answer
    claimed = {}
    for raw_id, record in found:
        run = readable(to_run, raw_id.decode(), record)
        if run is None:
            continue
        claim = Claim(
            owner=request.owner,
            token=run.token,
            claimed_at=from_micros(int(now)),
            expires_at=run.claimed_until,
            run_id=run.id,
            uid=run.uid,
        )
        claimed[run.id] = ClaimedRun(claim, run)
    return claimed


async def renew(
    server: Server, claims: Sequence[Claim], ttl: float | None, *, timeout: float | None
) -> list[Claim | None]:
    """Set leases to `ttl` from now, or without `ttl` release claims; None where a claim is lost."""
    renewed: list[Claim | None] = [None] * len(claims)
    slots = await _renew(server, dict(enumerate(claims)), {}, ttl, renewed, timeout)
    if slots:
        # Slots of another partition are extended first.
        ends = await extend(server, list(slots.values()), ttl, timeout=timeout)
        held = {n: end for n, end in zip(slots, ends, strict=True) if end is not None}
        await _renew(server, {n: claims[n] for n in held}, held, ttl, renewed, timeout)
    return renewed


async def _renew(
    server: Server,
    claims: Mapping[int, Claim],
    slot_ends: Mapping[int, str],
    ttl: float | None,
    renewed: list[Claim | None],
    timeout: float | None,
) -> dict[int, SlotRequest]:
    """Renew what is possible; the result has the slots to extend before the rest."""
    layout = server.layout
    by_part: dict[int, list[int]] = {}
    for n, claim in claims.items():
        queue = claim.queue or ""
        is_task = claim.task_id is not None
        part = layout.part_of_task(queue, claim.run_id) if is_task else layout.part_of(claim.run_id)
        by_part.setdefault(part, []).append(n)
    calls = []
    for part, numbers in by_part.items():
        own = [
            pack_claim(claims[n]) | ({"slot_ends": slot_ends[n]} if n in slot_ends else {})
            for n in numbers
        ]
        packed: dict[str, Any] = {"claims": own}
        if ttl is not None:
            packed["lease"] = lease(ttl)
        names = [of_run(claims[n].run_id, "state") for n in numbers if claims[n].task_id is None]
        names += CLAIM_INDEXES if names else ()
        names += TASKS if any(claims[n].task_id is not None for n in numbers) else ()
        calls.append(Call("renew", part, names, [pack(packed)]))
    slots: dict[int, SlotRequest] = {}
    returning = []
    answers = await server.each(calls, timeout=timeout)
    for call, numbers, (_, _, found, has_returns) in zip(
        calls, by_part.values(), answers, strict=True
    ):
        for n, (what, *rest) in zip(numbers, found, strict=True):
            if what == b"1":
                renewed[n] = _renewed(claims[n], rest[0], ttl)
            elif what == b"slot":
                slots[n] = to_wanted(rest[0])
        if has_returns == b"1":
            returning.append(call.part)
    if returning:
        await carry_releases_soon(server, returning, timeout=timeout)
    return slots


def _renewed(claim: Claim, until: bytes, ttl: float | None) -> Claim:
    if claim.expires_at is None or ttl is None:
        return claim
    expires_at = from_micros(int(until)) if until else None
    return msgspec.structs.replace(claim, expires_at=expires_at)


async def next_runnable_at(server: Server, *, timeout: float | None) -> datetime | None:
    """When the next run becomes claimable."""
    layout = server.layout
    times = []
    for _, frame, member in await distinct_prefixes(server, "runnable", timeout):
        start = 8 + len(frame)
        times.append(int(member[start + 1 : start + DUE]))
    commands = [
        (part, (b"ZRANGE", layout.key(part, "held"), b"0", b"0", b"WITHSCORES"))
        for part in range(layout.partitions)
    ]
    for reply in await server.commands(commands, timeout=timeout, writes=False):
        if reply:
            score = reply[0][1] if isinstance(reply[0], list) else reply[1]
            times.append(int(float(score)))
    return from_micros(min(times)) if times else None
