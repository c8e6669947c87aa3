"""What goes wrong on the way to Redis, or in it: typed errors, and nothing done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from outlast.errors import (
    Busy,
    OutlastError,
    ReadOnlyStore,
    StoreFault,
    StoreFull,
    TimedOut,
    TryAgain,
    Undecodable,
    UnknownOutcome,
    UnsafeStorage,
)
from outlast.model import Commit, Committed, Run
from outlast.model.times import NOW
from outlast.stores.redis import RedisStore
from outlast.stores.redis.driver_errors import translate
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.scenario import begin, event, events, signal
from tests.stores.redis.servers import SINGLE, own_prefix, url_of

pytestmark = pytest.mark.server


class Proxy:
    """A wire to the server that can be cut: before a request passes, or before its answer does."""

    def __init__(self) -> None:
        self.cut_requests = self.cut_answers = False
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes, both ways."""
        host, _, port = url_of(SINGLE).removeprefix("redis://").removesuffix("/0").partition(":")
        there, back = await asyncio.open_connection(host, int(port))
        self._writers += (writer, back)
        await asyncio.gather(
            self._pump(reader, back, requests=True), self._pump(there, writer, requests=False)
        )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, requests: bool
    ) -> None:
        while data := await reader.read(65536):
            if self.cut_requests if requests else self.cut_answers:
                break
            writer.write(data)
            await writer.drain()
        for one in self._writers:
            one.close()

    @property
    def url(self) -> str:
        """How to reach the server through it."""
        return f"redis://127.0.0.1:{self.port}/0"


@asynccontextmanager
async def proxied() -> AsyncIterator[Proxy]:
    """A wire."""
    proxy = Proxy()
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()


@pytest.mark.proves("M-43", "C-03", "C-20", "I3", "I12")
@pytest.mark.parametrize("is_written", [False, True], ids=["request lost", "answer lost"])
async def test_a_lost_connection_is_an_unknown_outcome(
    is_written: bool, clock: ManualClock
) -> None:
    """Nobody tries again by himself; the same commit, made again, happens once."""
    prefix = own_prefix()
    async with proxied() as proxy, RedisStore(proxy.url, prefix=prefix, clock=clock) as store:
        await begin(store, "r")
        commit = Commit(run_id="r", events=events("r", 2))
        proxy.cut_answers, proxy.cut_requests = is_written, not is_written
        with pytest.raises(UnknownOutcome):
            await store.commit([commit])
        proxy.cut_answers = proxy.cut_requests = False
        assert await store.last_sequence("r") == (2 if is_written else 0)
        (outcome,) = await store.commit([commit])
        assert isinstance(outcome, Committed)
        assert outcome.again is is_written
        assert await store.last_sequence("r") == 2


@pytest.mark.proves("C-20")
async def test_a_lost_read_is_no_unknown_outcome(clock: ManualClock) -> None:
    """Reading again does no harm: that is what the error says."""
    async with proxied() as proxy, RedisStore(proxy.url, prefix=own_prefix(), clock=clock) as store:
        proxy.cut_answers = True
        with pytest.raises(TryAgain) as caught:
            await store.find_one("r")
        assert not isinstance(caught.value, UnknownOutcome)


@pytest.mark.proves("C-20")
async def test_a_server_that_is_not_there(clock: ManualClock) -> None:
    """Nothing was sent, so nothing was written."""
    async with proxied() as proxy:
        url = proxy.url
    with pytest.raises(TryAgain) as caught:
        await RedisStore(url, clock=clock).open()
    assert not isinstance(caught.value, UnknownOutcome)


@pytest.mark.proves("I12", "I17")
async def test_out_of_memory(warden: Redis, victim: RedisStore) -> None:
    """Nothing of the commit remains; reads and deletion still work, and so does the next write."""
    await begin(victim, "r", *events("r", 1))
    before = await victim.get("r")
    big = event("r", data=Raw(b'"' + b"x" * 100_000 + b'"'))
    try:
        await warden.config_set("maxmemory", "1mb")
        with pytest.raises(StoreFull):
            await victim.append("r", [big])
        assert await victim.get("r") == before
        with pytest.raises(StoreFull):
            await victim.commit([Commit(run_id="n", create=Run(id="n"))])
        assert await victim.delete("r")
    finally:
        await warden.config_set("maxmemory", "0")
    assert not await victim.exists("n")
    assert await victim.append("n", events("n", 1)) == 1


@pytest.mark.proves("I12")
async def test_a_batch_of_which_a_part_failed_is_unknown(store: RedisStore) -> None:
    """Each commit is then settled by its id."""
    await begin(store, "a")
    server = await store._session.server()
    await server.commands(
        [(0, (b"SET", server.layout.key(0, "wf:b:state"), b"no hash"))], timeout=None, writes=True
    )
    batch = [Commit(run_id=id, create=Run(id=id)) for id in ("c", "b")]
    with pytest.raises(UnknownOutcome):
        await store.commit(batch)
    assert isinstance((await store.commit(batch[:1]))[0], Committed)
    with pytest.raises(Undecodable):
        await store.commit(batch[1:])
    assert (await store.get("c")).commit_id == batch[0].id


@pytest.mark.proves("I12")
async def test_a_replica_cannot_be_written(warden: Redis, victim: RedisStore) -> None:
    """READONLY, with advice, and nothing written."""
    await begin(victim, "r")
    try:
        await warden.replicaof("127.0.0.1", "1")
        with pytest.raises((ReadOnlyStore, Busy)):
            await victim.append("r", events("r", 1))
    finally:
        await warden.replicaof("NO", "ONE")
    assert await victim.append("r", events("r", 1)) == 1


async def test_no_connection_left(warden: Redis, own_server: str, clock: ManualClock) -> None:
    """maxclients: to be tried again later."""
    clients = int((await warden.config_get("maxclients"))["maxclients"] or 0)
    try:
        await warden.config_set("maxclients", 1)
        with pytest.raises(Busy, match="maxclients"):
            await RedisStore(own_server, clock=clock).open()
    finally:
        await warden.config_set("maxclients", clients)


@pytest.mark.proves("S22")
async def test_a_wrong_password(warden: Redis, own_server: str, clock: ManualClock) -> None:
    """Said without saying which."""
    try:
        await warden.config_set("requirepass", "right")
        for url in (own_server, own_server.replace("//", "//:wrong@")):
            with pytest.raises(StoreFault, match="let us in"):
                await RedisStore(url, clock=clock).open()
        async with RedisStore(own_server.replace("//", "//:right@"), clock=clock):
            pass
    finally:
        await warden.config_set("requirepass", "")


@pytest.mark.proves("M-10", "C-20")
async def test_a_server_that_is_slow(warden: Redis, victim: RedisStore) -> None:
    """A read that is out of time is `TimedOut`; a write that was sent is unknown."""
    await begin(victim, "r")
    await warden.client_pause(1000)  # it ends by itself
    with pytest.raises(UnknownOutcome):
        await victim.append("r", events("r", 1), timeout=0.01)
    with pytest.raises(TimedOut):
        await victim.find_one("r", timeout=0.01)
    assert await victim.last_sequence("r") in (0, 1)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
        ("MISCONF Errors writing to the AOF file", StoreFull),
        ("READONLY You can't write against a read only replica.", ReadOnlyStore),
        ("LOADING Redis is loading the dataset in memory", Busy),
        ("BUSY Redis is busy running a script.", Busy),
        ("CLUSTERDOWN The cluster is down", Busy),
        ("NOAUTH Authentication required.", StoreFault),
        ("NOPERM this user has no permissions", StoreFault),
        ("WRONGTYPE Operation against a key", StoreFault),
        ("ERR something else", StoreFault),
    ],
)
def test_answers_that_are_errors(message: str, kind: type[OutlastError]) -> None:
    """Each has its place in the tree."""
    assert isinstance(translate(ResponseError(message), "here", unknown=True), kind)
    assert translate(ValueError("ours"), "here", unknown=True) is None


@pytest.mark.proves("I3", "I6")
async def test_a_server_that_was_flushed_is_not_begun_again_in_silence(
    victim: RedisStore, warden: Redis, own_server: str
) -> None:
    """FLUSHALL under an open store: no claim, renewal, commit or send of it goes on as if nothing had
    been there, not even after another process has begun an empty store in its place."""
    await begin(victim, "r", runnable_at=NOW)
    (claimed,) = await victim.claim_runs("w", 60)
    await warden.flushall()

    async def refuses_all() -> None:
        with pytest.raises(UnsafeStorage, match="is gone"):
            await victim.claim_runs("w", 60)
        with pytest.raises(UnsafeStorage, match="start them again"):
            await victim.renew([claimed.claim], 60)
        with pytest.raises(UnsafeStorage):
            await victim.append("r", [event("r")])
        with pytest.raises(UnsafeStorage):
            await victim.send([signal("r")])

    await refuses_all()
    assert await warden.dbsize() == 0
    async with RedisStore(own_server, prefix=str(victim.describe()["prefix"])) as new:
        await begin(new, "fresh")
        await refuses_all()
    async with victim.queue() as queue:
        with pytest.raises(UnsafeStorage):
            await queue.take_many(["default"], owner="w", visibility=60, limit=1)
