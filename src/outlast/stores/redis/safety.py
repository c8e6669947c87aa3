"""The safety of a Redis: what an acknowledged write survives, and whether it evicts keys."""

from __future__ import annotations

import logging
import re
from typing import Any, NamedTuple

from outlast.errors import InvalidValue, StoreFault, UnsafeStorage
from outlast.ports.capabilities import Durability
from outlast.stores.redis.connection import Command, Link, SingleLink

_logger = logging.getLogger(__name__)

QUESTIONS: list[Command] = [
    (b"CONFIG", b"GET", b"appendonly"),
    (b"CONFIG", b"GET", b"appendfsync"),
    (b"CONFIG", b"GET", b"maxmemory-policy"),
    (b"INFO", b"persistence"),
    (b"INFO", b"memory"),
    (b"INFO", b"server"),
    (b"INFO", b"cluster"),
]

MIN_VERSION = (6, 2)
"""The first Redis version with all commands of the scripts."""


class Safety(NamedTuple):
    """The settings of the least safe primary."""

    durability: Durability
    append_only: bool
    fsync: str
    eviction: str
    version: str


async def inspect(link: Link, where: str, *, allow_eviction: bool) -> Safety:
    """Inspect each primary: `UnsafeStorage` if one may evict keys, unless allowed; `InvalidValue` if a single server is
    a node of a cluster; `StoreFault` if one is too old."""
    answers = await link.everywhere(QUESTIONS)
    # The name of the mode differs (Redis: redis_mode, Valkey: server_mode), this one does not.
    if isinstance(link, SingleLink) and _info(answers[0][6]).get("cluster_enabled") == "1":
        raise InvalidValue(
            f"Redis at {where} is a node of a cluster, and has a part of the keys only: use "
            "redis+cluster://…, or RedisClusterStore with a RedisCluster client"
        )
    found = [_read(replies) for replies in answers]
    for one in found:
        if _is_too_old(one.version):
            raise StoreFault(f"{where} runs Redis {one.version}: 6.2 or later is needed, or Valkey")
    worst = min(found, key=lambda one: one.durability)
    for one in found:
        if one.eviction.startswith("allkeys"):
            # volatile-* evicts only keys that expire, and none of ours does.
            if not allow_eviction:
                raise UnsafeStorage(
                    f"Redis at {where} evicts keys when memory is short (maxmemory-policy "
                    f"{one.eviction}), and with them runs: set it to noeviction, or pass "
                    "allow_eviction=True if you can lose them"
                )
            _logger.warning("Redis at %s may evict runs (%s)", where, one.eviction)
    if worst.durability is Durability.NOTHING:
        _logger.warning("Redis at %s has no append-only file: a restart loses runs", where)
    return worst


def _read(replies: list[Any]) -> Safety:
    append_only, fsync, eviction = (_setting(reply) for reply in replies[:3])
    info = {**_info(replies[3]), **_info(replies[4]), **_info(replies[5])}
    # CONFIG may be forbidden, as in hosted services; INFO tells less.
    is_appending = (append_only or "no") == "yes" or info.get("aof_enabled") == "1"
    if not is_appending:
        durability = Durability.NOTHING
    elif fsync == "always":
        durability = Durability.POWER_LOSS
    else:
        durability = Durability.PROCESS_CRASH
    return Safety(
        durability,
        is_appending,
        fsync or "unknown",
        eviction or info.get("maxmemory_policy", "unknown"),
        info.get("valkey_version") or info.get("redis_version", "unknown"),
    )


def _is_too_old(version: str) -> bool:
    """Whether a version is known and too old; a hosted service may hide it."""
    parts = re.findall(r"\d+", version)[:2]
    return len(parts) == 2 and (int(parts[0]), int(parts[1])) < MIN_VERSION


def _setting(reply: Any) -> str | None:
    if isinstance(reply, dict):
        reply = [part for pair in reply.items() for part in pair]
    return bytes(reply[1]).decode() if isinstance(reply, list) and len(reply) == 2 else None


def _info(reply: Any) -> dict[str, str]:
    if not isinstance(reply, bytes):
        return {}
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
