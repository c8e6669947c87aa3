"""Where a Redis is, by URL, and how to make a client for it. Passwords stay in here.

::

    redis://[user:password@]host[:port][/db]        one server; rediss:// with TLS
    redis+sentinel://host:port,…/name[/db]          the primary that Sentinel calls `name`
    redis+cluster://host[:port],host[:port]…        a cluster; rediss+cluster:// with TLS

`prefix`, `partitions` and `retention` (seconds, or "off") may be given as parameters of the URL; the
others are redis-py's own.

The safety of a Redis: what an acknowledged write survives, and whether it evicts keys.
"""

from __future__ import annotations

import logging
import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from outlast.errors import InvalidValue, StoreFault, UnsafeStorage
from outlast.ports.port import Durability
from outlast.stores.redis.connection import ClusterLink, Command, Link, SingleLink

CONNECTIONS = 32
OURS = ("prefix", "partitions", "retention")
SINGLE = ("redis", "rediss", "unix")
CLUSTER = ("redis+cluster", "rediss+cluster")
SENTINEL = ("redis+sentinel", "rediss+sentinel")


class Location(NamedTuple):
    """A Redis to be connected to. `where` is how it is called in messages."""

    url: str
    where: str
    options: dict[str, str]
    is_cluster: bool

    def __repr__(self) -> str:
        return f"Location({self.where!r})"

    @classmethod
    def parse(cls, url: str) -> Location:
        """Read a URL; `InvalidValue` if it is none of ours. The message never shows the URL."""
        try:
            parts = urlsplit(url)
            given = dict(parse_qsl(parts.query))
        except ValueError as error:
            raise InvalidValue("this Redis URL cannot be read: check it for brackets") from error
        if parts.scheme not in (*SINGLE, *CLUSTER, *SENTINEL):
            known = ", ".join((*SINGLE, *CLUSTER, *SENTINEL))
            raise InvalidValue(f"{parts.scheme}:// does not name a Redis: use one of {known}")
        where = parts.netloc.rpartition("@")[2] or parts.path
        options = {name: given.pop(name) for name in OURS if name in given}
        plain = urlunsplit(parts._replace(query=urlencode(given)))
        return cls(plain, where, options, parts.scheme in CLUSTER)

    def connect(self) -> Link:
        """A link of our own."""
        scheme = self.url.partition(":")[0]
        if scheme in CLUSTER:
            return self._cluster()
        if scheme in SENTINEL:
            return self._sentinel()
        pool = BlockingConnectionPool.from_url(
            self.url, max_connections=CONNECTIONS, timeout=None, retry=_never(), socket_timeout=None
        )
        return SingleLink(Redis(connection_pool=pool), owned=True)

    def _cluster(self) -> Link:
        parts, options = self._parts()
        nodes = [ClusterNode(host, port) for host, port in _hosts(parts.netloc, 6379)]
        return ClusterLink(RedisCluster(startup_nodes=nodes, **options), owned=True)

    def _sentinel(self) -> Link:
        parts, options = self._parts()
        name, _, db = unquote(parts.path).strip("/").partition("/")
        if not name:
            raise InvalidValue("a Sentinel URL names its primary: redis+sentinel://host:26379/name")
        sentinel: Any = Sentinel(_hosts(parts.netloc, 26379), **options)  # type: ignore[no-untyped-call]
        client = sentinel.master_for(name, db=int(db or 0), retry=_never())
        return SingleLink(client, owned=True, sentinels=sentinel.sentinels)

    def _parts(self) -> tuple[Any, dict[str, Any]]:
        parts = urlsplit(self.url)
        # How long to wait is said with each call.
        options: dict[str, Any] = {"socket_timeout": None}
        login = parts.netloc.rpartition("@")[0]
        if login:
            user, _, password = login.partition(":")
            options["username"], options["password"] = (
                unquote(user) or None,
                unquote(password) or None,
            )
        if parts.scheme.startswith("rediss"):
            options["ssl"] = True
        return parts, options


def _hosts(netloc: str, port: int) -> list[tuple[str, int]]:
    found = []
    for place in netloc.rpartition("@")[2].split(","):
        host, _, own = place.rpartition(":") if ":" in place else (place, "", "")
        try:
            found.append((host or "localhost", int(own or port)))
        except ValueError as error:
            raise InvalidValue(f"{place!r} is no host and port of a Redis") from error
    return found


def _never() -> Retry:
    """What was sent is not sent again (link.py); connecting once is enough, too."""
    return Retry(NoBackoff(), 0)


def link_of(client: object) -> Link:
    """A link through a client that the user has made, and closes."""
    if isinstance(client, RedisCluster):
        return ClusterLink(client, owned=False)
    if isinstance(client, Redis):
        return SingleLink(client, owned=False)
    raise InvalidValue(
        f"a {type(client).__name__} is no client for Redis: use redis.asyncio.Redis, "
        "redis.asyncio.RedisCluster, or a URL"
    )


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
