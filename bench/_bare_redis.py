"""A bare script that appends to Redis, as many EVALSHA in a pipeline as there are callers. *Unchecked* it
adds the events; *fenced* it first compares token and sequence of the run and moves the sequence on. Its
arguments are packed before the clock starts, ours are not."""

from __future__ import annotations

import time
import uuid

from redis.asyncio import Redis

from bench._appends import some_events
from bench.peers._clock import made_ready
from outlast.stores.redis.packing import pack, pack_events

TOKEN = "7"
FENCE = """
local token, sequence = unpack(redis.call('HMGET', KEYS[1], 'token', 'sequence'))
if token ~= ARGV[1] or sequence ~= ARGV[2] then
    return redis.error_reply('fenced')
end
"""
APPEND = """
local events = cmsgpack.unpack(ARGV[3])
local next = tonumber(ARGV[2])
for i = 1, #events, 3 do
    next = next + 1
    redis.call('ZADD', KEYS[2], next, string.format('%.0f ', next) .. events[i + 2])
    redis.call('HSET', KEYS[3], events[i], next)
end
"""
MOVE = "redis.call('HSET', KEYS[1], 'sequence', string.format('%.0f', next))"


async def bare_scripts(url: str, callers: int, each: int, size: int, *, fenced: bool) -> float:
    """Seconds for `each` pipelines of an append of `size` events for every caller."""
    async with Redis.from_url(url) as client:
        sha = await client.script_load(FENCE + APPEND + MOVE if fenced else APPEND)
        keys = []
        for n in range(callers):
            head = f"bare:{uuid.uuid4().hex}:{n}"
            await client.hset(f"{head}:state", mapping={"token": TOKEN, "sequence": "0"})
            keys.append((f"{head}:state", f"{head}:events", f"{head}:ids"))
        events = [some_events("bare", each, size) for _ in range(callers)]
        ready = [
            [
                (*keys[n], TOKEN, str(one * size), pack(pack_events(events[n][one])))
                for n in range(callers)
            ]
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
