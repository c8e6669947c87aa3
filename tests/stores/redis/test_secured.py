"""Sentinel and TLS, on servers that have them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from outlast import App, step, workflow
from outlast.errors import OutlastError
from outlast.stores.redis import RedisStore
from outlast.testkit.conformance.scenario import begin, events
from tests.stores.sqlite_processes.crew import pause_for
from tools.serving.redis import Watched, start_own, start_with_tls

pytestmark = pytest.mark.server


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled(number: int) -> int:
    return await double(number)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A primary, its replica, and a sentinel that watches them."""
    watched = Watched(tmp_path_factory.mktemp("watched"))
    yield watched
    watched.stop()


@pytest.mark.proves("M-42")
async def test_sentinel_says_where_the_primary_is(watched: Watched) -> None:
    """Also after the first one was killed: whoever tries again is on the new one."""
    async with RedisStore(watched.url) as store:
        await begin(store, "r", *events("r", 1))
        before = watched.primary()
        watched.kill_primary()
        assert watched.primary() != before
        for _ in range(200):
            try:
                assert await store.append("r", events("r", 1)) == 2
                break
            except OutlastError:
                pause_for(0.05)  # the old primary has gone
        assert await store.last_sequence("r") == 2


@pytest.fixture
def certified(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate that nobody has signed, and its key."""
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@pytest.mark.proves("M-41", "S22")
async def test_a_server_with_tls(tmp_path: Path, certified: tuple[Path, Path]) -> None:
    """Its certificate is checked: one that nobody knows is not accepted."""
    url, process = start_with_tls(tmp_path, *certified)
    try:
        async with RedisStore(f"{url}?ssl_ca_certs={certified[0]}") as store:
            await begin(store, "r", *events("r", 1))
            assert await store.last_sequence("r") == 1
        with pytest.raises(OutlastError):
            await RedisStore(url).open()
    finally:
        process.stop()


@pytest.mark.proves("M-42")
@pytest.mark.parametrize("rights", [["&outlast:*"], []], ids=["channel", "no channel"])
async def test_a_user_needs_few_rights(tmp_path: Path, rights: list[str]) -> None:
    """Its keys and nothing dangerous but INFO. From Redis 7 on a new user has no channels: without one it
    looks for work instead of hearing of it."""
    url, server = start_own(tmp_path)
    try:
        async with Redis.from_url(url) as admin:
            allowed = ["~outlast:*", "+@all", "-@dangerous", "+info", *rights]
            setting = ("ACL", "SETUSER", "shop", "reset", "on", ">pw", *allowed)
            await admin.execute_command(*setting)  # type: ignore[no-untyped-call]
        async with App(url.replace("//", "//shop:pw@"), workflows=[doubled]) as app:
            run = await app.start(doubled(21))
            assert await run.result(timeout=30) == 42
            found = app.store.describe()  # type: ignore[attr-defined]
        assert (found["append_only"], found["fsync"]) == (True, "unknown")  # CONFIG is forbidden
    finally:
        server.stop()
