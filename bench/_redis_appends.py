"""Appends to the Redis store, next to a bare script that appends, pipelined in the same way."""

from __future__ import annotations

import asyncio
import time

from redis.asyncio import Redis

from bench._appends import script, some_events
from bench._table import Line, made_ready
from outlast.engine.journal import Journal
from outlast.model import Commit
from outlast.stores.redis import RedisStore
from outlast.stores.redis.packing import pack, pack_events

BARE = """
local token, sequence = unpack(redis.call('HMGET', KEYS[1], 'token', 'sequence'))
if token ~= ARGV[1] or sequence ~= ARGV[2] then
    return redis.error_reply('fenced')
end
local events = cmsgpack.unpack(ARGV[3])
local next = tonumber(sequence)
for i = 1, #events, 3 do
    next = next + 1
    redis.call('ZADD', KEYS[2], next, string.format('%.0f ', next) .. events[i + 2])
    redis.call('HSET', KEYS[3], events[i], next)
end
redis.call('HSET', KEYS[1], 'sequence', string.format('%.0f', next))
return next
"""
BATCH = 100
APPENDS = {1: 4_000, 10: 1_500, 100: 300}
AIM = 0.5


async def measure_appends(url: str, rounds: int) -> list[Line]:
    """Events a second, by events in a commit, 100 runs at once."""
    lines = []
    async with RedisStore(url, prefix="bench:appends") as store, Redis.from_url(url) as client:
        for size, count in APPENDS.items():
            ours: list[float] = []
            batches: list[float] = []
            theirs: list[float] = []
            for number in range(rounds):
                each = count // BATCH
                ours.append(each * BATCH * size / await _through_a_journal(store, each, size))
                batches.append(each * BATCH * size / await _in_batches(store, each, size))
                theirs.append(each * BATCH * size / await _bare(client, each, size, number))
            what = f"{BATCH} EVALSHA in a pipeline:"
            name = f"append, {BATCH} runs at once, {size} events a commit"
            lines += [
                Line(f"{name}, store", "events/s", batches, theirs, what, AIM),
                Line(f"{name}, callers of a journal", "events/s", ours, theirs, what),
            ]
    return lines


async def _scripts(store: RedisStore, each: int, size: int) -> list[list[Commit]]:
    return [await script(store, each, size) for _ in range(BATCH)]


async def _through_a_journal(store: RedisStore, each: int, size: int) -> float:
    scripts = await _scripts(store, each, size)
    journal = Journal(store)

    async def call(commits: list[Commit]) -> None:
        for commit in commits:
            await journal.commit(commit)

    with made_ready():
        begun = time.perf_counter()
        await asyncio.gather(*(call(commits) for commits in scripts))
        return time.perf_counter() - begun


async def _in_batches(store: RedisStore, each: int, size: int) -> float:
    batches = list(zip(*await _scripts(store, each, size), strict=True))
    with made_ready():
        begun = time.perf_counter()
        for batch in batches:
            await store.commit(batch)
        return time.perf_counter() - begun


async def _bare(client: Redis, each: int, size: int, number: int) -> float:
    sha = await client.script_load(BARE)
    keys = []
    for n in range(BATCH):
        head = f"bench:bare:{size}:{number}:{n}"
        await client.hset(f"{head}:state", mapping={"token": "7", "sequence": "0"})
        keys.append((f"{head}:state", f"{head}:events", f"{head}:ids"))
    events = [some_events("bare", each, size) for _ in range(BATCH)]
    ready = [
        [(*keys[n], "7", str(one * size), pack(pack_events(events[n][one]))) for n in range(BATCH)]
        for one in range(each)
    ]
    with made_ready():
        begun = time.perf_counter()
        for batch in ready:
            pipeline = client.pipeline(transaction=False)
            for args in batch:
                pipeline.evalsha(sha, 3, *args)
            await pipeline.execute()
        return time.perf_counter() - begun
