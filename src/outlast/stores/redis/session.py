"""Server: a Redis that a store and its queues share. Session: its use by one of them, from open to close.

A call is a script with the names of its keys. Several calls are sent as one pipeline, each to its partition, and each
is atomic. A script that needs more keys is called again with them; a script that the server does not know is
loaded and called again. Both happen before the script has written anything.

The Lua scripts by name, each with the parts of lua/lib that it includes, and its SHA.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from redis.exceptions import NoScriptError, RedisError

from outlast.errors import Busy, Closed, NotAStore, SchemaTooNew, StoreClosed
from outlast.model.ids import new_id
from outlast.model.times import from_micros, to_micros
from outlast.ports.clock import Clock
from outlast.ports.port import Durability
from outlast.stores.redis.connection import Attempt, Command, Link, Request
from outlast.stores.redis.driver_errors import translate
from outlast.stores.redis.keys import Layout
from outlast.stores.redis.location import Location, Safety, inspect, link_of

FORMAT = 1
DELETING = "deleting:"
"""A wanted key with this prefix names the root of a tree whose deletion has to be finished first."""
MAX_ROUNDS = 50

pack = msgspec.msgpack.Encoder().encode


class Call(NamedTuple):
    """A call of a script on a partition, with the keys that the caller knows it to touch."""

    script: str
    part: int
    names: Sequence[str]
    args: Sequence[bytes] = ()


class Server:
    """Closed by the last session that leaves."""

    def __init__(
        self,
        place: Location | object,
        layout: Layout,
        *,
        clock: Clock | None,
        allow_eviction: bool,
    ) -> None:
        self.place = place
        self.layout = layout
        self.where = place.where if isinstance(place, Location) else "the given client"
        self.safety: Safety | None = None
        self.offset = timedelta(0)
        """Added to the server's time, by tests only."""
        self._clock = clock
        self._allow_eviction = allow_eviction
        self._link: Link | None = None
        self._pid = 0
        self._opening = asyncio.Lock()
        self._users: set[object] = set()
        self._floor = 0
        self._identities: dict[int, str] = {}
        """Identities of the partitions at the first open."""
        self.tidy_at: dict[str, float] = {}
        """When to check orphaned slots next, by scope."""
        self._is_known = False
        self.was_open = False

    @property
    def is_open(self) -> bool:
        """Whether a session has it open."""
        return self._link is not None

    @property
    def is_inherited(self) -> bool:
        """Whether the parent process opened it before a fork."""
        return self._link is not None and self._pid != os.getpid()

    def copy_state(self, other: Server) -> None:
        """Take over what `other`, on the same Redis, has found out."""
        self.safety, self.offset, self._allow_eviction = other.safety, other.offset, True
        self._is_known = other.is_open
        self._identities = other._identities

    async def open(self, user: object) -> None:
        """Connect, unless another session has."""
        async with self._opening:
            if self._link is None:
                place = self.place
                link = place.connect() if isinstance(place, Location) else link_of(place)
                try:
                    await self._prepare(link)
                except BaseException:
                    await link.close()
                    raise
                self._link, self._pid = link, os.getpid()
            self._users.add(user)
            self.was_open = True

    async def close(self, user: object) -> None:
        """Leave; the last session disconnects."""
        if self.is_inherited:
            self._users.discard(user)
            if not self._users:
                # A connection that is closed or finalised here would leave the parent's event loop.
                _inherited.append(self._link)
                self._link = None
            return
        async with self._opening:
            self._users.discard(user)
            if not self._users and self._link is not None:
                link, self._link = self._link, None
                await link.close()

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""
        return Durability.NOTHING if self.safety is None else self.safety.durability

    async def _prepare(self, link: Link) -> None:
        """Load missing scripts, inspect the server's safety, and check the partitions."""
        layout, attempt = self.layout, Attempt()
        try:
            await link.open()
            if self._is_known:
                return
            known = await link.everywhere(
                [(b"SCRIPT", b"EXISTS", *(one.sha for one in all_scripts()))]
            )
            for found in known:
                if isinstance(found[0], Exception):
                    raise self._error(found[0], unknown=False) from found[0]
            absent = [
                one
                for n, one in enumerate(all_scripts())
                if not all(found[0][n] for found in known)
            ]
            if absent:
                await link.everywhere([(b"SCRIPT", b"LOAD", one.text) for one in absent])
            self.safety = await inspect(link, self.where, allow_eviction=self._allow_eviction)
            identity = new_id()
            request = pack(
                {"format": FORMAT, "partitions": layout.partitions, "identity": identity}
            )
            calls = [
                Call("open_partition", part, ["meta"], [request])
                for part in range(layout.partitions)
            ]
            answers = await link.run([self._request(one) for one in calls], attempt)
        except (RedisError, OSError) as error:
            raise self._error(error, unknown=False) from error
        for part, answer in enumerate(answers):
            if isinstance(answer, Exception):
                raise self._error(answer, unknown=False) from answer
            self._identities[part] = _check_meta(answer, layout, self.where)

    # -- calls --------------------------------------------------------------------------------

    async def commands(
        self, requests: Sequence[tuple[int, Command]], *, timeout: float | None, writes: bool
    ) -> list[Any]:
        """The replies to plain commands, each on a partition. An error is raised."""
        replies = await self.replies(requests, timeout=timeout, writes=writes)
        for reply in replies:
            if isinstance(reply, Exception):
                raise self._error(reply, unknown=False) from reply
        return replies

    async def replies(
        self, requests: Sequence[tuple[int, Command]], *, timeout: float | None, writes: bool
    ) -> list[Any]:
        """The same, with error replies as values."""
        asked = [Request(self.layout.prefixes[part] + b"meta", one) for part, one in requests]
        return await self._run(asked, timeout, writes=writes)

    async def calls(
        self, calls: Sequence[Call], *, timeout: float | None, writes: bool = True
    ) -> list[Any]:
        """The results of scripts, in order; an error reply is a value."""
        answers: list[Any] = [None] * len(calls)
        left = dict(enumerate(calls))
        clock = asyncio.get_running_loop().time
        deadline = None if timeout is None else clock() + timeout
        for _ in range(MAX_ROUNDS):
            numbers = list(left)
            wait = None if deadline is None else deadline - clock()
            replies = await self._run(
                [self._request(left[n]) for n in numbers], wait, writes=writes
            )
            unknown: dict[int, Script] = {}
            going: set[tuple[int, str]] = set()
            for n, reply in zip(numbers, replies, strict=True):
                if isinstance(reply, NoScriptError):
                    unknown[n] = script(left[n].script)
                elif isinstance(reply, list) and reply and reply[0] == b"want":
                    left[n], roots = self._with_keys(left[n], reply[1])
                    going |= {(left[n].part, root) for root in roots}
                else:
                    answers[n] = reply
                    del left[n]
            if unknown:
                wait = None if deadline is None else deadline - clock()
                await self._load({left[n].part: one for n, one in unknown.items()}, wait)
            for part, root in sorted(going):
                wait = None if deadline is None else deadline - clock()
                await self.finish_deletion(part, root, timeout=wait)
            if not left:
                return answers
        raise Busy("other processes keep changing the same runs: nothing was written, retry")

    async def call(self, call: Call, *, timeout: float | None, writes: bool = True) -> Any:
        """The result of one script. Raises an error reply."""
        answer = (await self.calls([call], timeout=timeout, writes=writes))[0]
        if isinstance(answer, Exception):
            raise self._error(answer, unknown=False) from answer
        return answer

    async def each(
        self, calls: Sequence[Call], *, timeout: float | None, writes: bool = True
    ) -> list[Any]:
        """The results of scripts, in order. Raises the first error reply."""
        answers = await self.calls(calls, timeout=timeout, writes=writes) if calls else []
        for answer in answers:
            if isinstance(answer, Exception):
                raise self._error(answer, unknown=False) from answer
        return answers

    async def finish_deletion(self, part: int, root: str, *, timeout: float | None) -> None:
        """Delete the remaining descendants of a tree in portions, so that the server serves other clients in
        between. It may put entries into the outbox."""
        call = Call("delete_portion", part, ["idx:ids", "idx:keyed"], [pack({"id": root})])
        clock = asyncio.get_running_loop().time
        deadline = None if timeout is None else clock() + timeout
        state = b"more"
        while state != b"done":
            wait = None if deadline is None else deadline - clock()
            (state,) = await self.call(call, timeout=wait)

    async def subscribe(self, channel: bytes, heard: Callable[[bytes], None]) -> None:
        """Call `heard` with each message of a channel, until cancelled."""
        if self._link is not None:
            await self._link.subscribe(channel, heard)

    def saw_token(self, token: int) -> None:
        """New tokens are greater from now on."""
        self._floor = max(self._floor, token)

    def fault(self, error: Exception) -> Exception:
        """The outlast error for an error reply."""
        return self._error(error, unknown=False)

    async def now(self, *, timeout: float | None) -> datetime:
        """The store's time."""
        if self._clock is not None:
            return self._clock.now()
        (found,) = await self.commands([(0, (b"TIME",))], timeout=timeout, writes=False)
        return from_micros(int(found[0]) * 1_000_000 + int(found[1])) + self.offset

    async def _run(
        self, requests: Sequence[Request], timeout: float | None, *, writes: bool
    ) -> list[Any]:
        link = self._link
        if link is None:
            raise StoreClosed(f"the store at {self.where} is closed: open it again")
        attempt = Attempt()
        task = asyncio.current_task()
        cancels = 0 if task is None else task.cancelling()
        try:
            async with asyncio.timeout(timeout):
                return await link.run(requests, attempt)
        except (RedisError, OSError, TimeoutError) as error:
            raise self._error(error, unknown=writes and attempt.sent) from error
        finally:
            # redis-py can swallow a cancellation; its caller must not.
            if task is not None and task.cancelling() > cancels:
                raise asyncio.CancelledError

    def _request(self, call: Call) -> Request:
        prefix, source = self.layout.prefixes[call.part], script(call.script)
        keys = [prefix + name.encode() for name in dict.fromkeys((*call.names, "meta"))]
        count = b"%d" % len(keys)
        identity = None if call.script == "open_partition" else self._identities.get(call.part)
        given = self._given(call.part, identity)
        command = (b"EVALSHA", source.sha, count, *keys, given, *call.args)
        return Request(prefix + b"meta", command)

    def _given(self, part: int, identity: str | None) -> bytes:
        if self._clock is not None:
            now = f"={to_micros(self._clock.now())}"
        else:
            now = f"{self.offset // timedelta(microseconds=1):+d}"
        return pack(
            {
                "prefix": self.layout.prefixes[part].decode(),
                "now": now,
                "part": part,
                "parts": self.layout.partitions,
                "floor": str(self._floor),
                **({} if identity is None else {"identity": identity}),
            }
        )

    def _with_keys(self, call: Call, keys: Sequence[bytes]) -> tuple[Call, list[str]]:
        """The call with the wanted keys, and the roots of trees whose deletion has to be finished first."""
        size = len(self.layout.prefixes[call.part])
        more = [key[size:].decode() for key in keys]
        names = [name for name in more if not name.startswith(DELETING)]
        roots = [name.removeprefix(DELETING) for name in more if name.startswith(DELETING)]
        return call._replace(names=[*call.names, *names]), roots

    async def _load(self, scripts: dict[int, Script], timeout: float | None) -> None:
        commands = [(part, (b"SCRIPT", b"LOAD", one.text)) for part, one in scripts.items()]
        await self.commands(commands, timeout=timeout, writes=False)

    def _error(self, error: BaseException, *, unknown: bool) -> Exception:
        translated = translate(error, self.where, unknown=unknown)
        if translated is None:
            assert isinstance(error, Exception)
            return error
        return translated


_inherited: list[object] = []
"""Objects of the parent process in a forked child: never finalised."""


def _check_meta(answer: Sequence[bytes | None], layout: Layout, where: str) -> str:
    """The identity of a partition; raises if it does not belong to this store."""
    format, partitions, identity = answer
    if format is None or partitions is None or identity is None:
        raise NotAStore(
            f"{layout.prefix}:meta at {where} does not belong to an outlast store: choose another prefix"
        )
    if int(format) > FORMAT:
        raise SchemaTooNew(f"the store at {where} was written by a newer outlast: upgrade")
    if int(partitions) != layout.partitions:
        raise NotAStore(
            f"the store {layout.prefix!r} at {where} has {int(partitions)} partitions, not "
            f"{layout.partitions}: their number is fixed when a store is created"
        )
    return identity.decode()


class Session:
    """Opens at the first call at the latest. A borrowed session works while another session has the server open."""

    def __init__(self, server: Server, closed: type[Closed], *, borrowed: bool = False) -> None:
        self._server = server
        self._error = closed
        self._borrowed = borrowed
        self._is_open = self._is_closed = False

    @property
    def layout(self) -> Layout:
        """Prefix and partitions."""
        return self._server.layout

    async def open(self) -> None:
        """Connect. Opening an open session does nothing."""
        if not self._is_open:
            await self._server.open(self)
        self._is_open, self._is_closed = True, False

    async def close(self) -> None:
        """Leave; later calls raise. Idempotent."""
        self._is_open, self._is_closed = False, True
        await self._server.close(self)

    async def server(self) -> Server:
        """The server, connected."""
        server = self._server
        if server.is_inherited:
            raise self._error(
                f"the store at {server.where} was opened before this process was forked, and "
                "connections do not survive a fork: open a new store in the child"
            )
        if not self._is_open:
            shared = self._borrowed and server.is_open and not self._is_closed
            if self._is_closed or (self._borrowed and server.was_open and not shared):
                raise self._error(f"{server.where} is closed: open it again, or close it later")
            if not shared:
                await self.open()
        return self._server


_INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_FOLDER = files("outlast.stores.redis").joinpath("lua")


class Script(NamedTuple):
    """A static script. Redis knows it by its SHA once it was loaded."""

    name: str
    text: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script of that name."""
    source = _FOLDER.joinpath(f"{name}.lua").read_text(encoding="utf-8")
    text = _COMMENT.sub("", _whole(source)).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


@cache
def all_scripts() -> tuple[Script, ...]:
    """Every script, to be loaded at once."""
    names = [file.name for file in _FOLDER.iterdir()]
    return tuple(script(name[:-4]) for name in sorted(names) if name.endswith(".lua"))


@cache
def _part(name: str) -> str:
    return _whole(_FOLDER.joinpath("lib", f"{name}.lua").read_text(encoding="utf-8"))


def _whole(source: str) -> str:
    return _INCLUDE.sub(lambda found: _part(found[1]), source)
