"""How a store is opened: by URL, on a user's connections, in a schema, under a prefix."""

from __future__ import annotations

import logging

import asyncpg
import pytest

import outlast
from outlast.errors import InvalidValue, NotAStore, StoreClosed, StoreFault, Unavailable
from outlast.model import Commit, Committed, Event, Run, Task
from outlast.ports import Durability
from outlast.stores.postgres import PostgresQueue, PostgresStore
from outlast.urls import resolve
from tests.stores.postgres.conftest import MakeRole
from tests.stores.postgres.places import SCHEMA, ask, direct, pooled

pytestmark = pytest.mark.server

SECRET = "s3cr3t-pass"


def event(run_id: str) -> Event:
    """An event of a run."""
    return Event(type="note.added", run_id=run_id)


async def test_an_app_finds_the_store_by_its_url(schema: str) -> None:
    """Both names of the scheme mean this store."""
    for url in (direct(), direct().replace("postgresql:", "postgres:")):
        store = resolve(url)
        assert isinstance(store, PostgresStore)
    assert outlast.App(direct()).store.durability is Durability.NOTHING  # until it is opened


async def test_schema_and_prefix_keep_stores_apart(schema: str) -> None:
    """Two prefixes in one schema are two stores."""
    one = PostgresStore(direct(), schema=schema, prefix="one_", notify=False)
    two = PostgresStore(direct(), schema=schema, prefix="two_", notify=False)
    async with one, two:
        await one.append("r", [event("r")])
        assert await one.exists("r")
        assert not await two.exists("r")
    names = await ask("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    assert {"one_runs", "two_runs"} <= {name for (name,) in names}


@pytest.mark.parametrize(
    "options",
    [
        {"schema": 'x"; DROP TABLE runs; --'},
        {"schema": ""},
        {"schema": "pg_mine"},
        {"schema": "Upper"},
        {"schema": "x" * 64},
        {"prefix": "a b"},
        {"prefix": "x" * 31},
        {"pool_size": 0},
        {"pool_size": "many"},
    ],
)
def test_settings_that_cannot_be(options: dict[str, object]) -> None:
    """Names are plain, and refused before anything is sent to the server."""
    with pytest.raises(InvalidValue):
        PostgresStore("postgresql://localhost/x", **options)  # type: ignore[arg-type]


async def test_a_pool_of_the_user_is_not_closed(schema: str) -> None:
    """Whoever passes a pool keeps it, also one that reads JSON in its own way."""

    async def own_json(connection: asyncpg.Connection) -> None:
        for name in ("json", "jsonb"):
            await connection.set_type_codec(
                name, schema="pg_catalog", encoder=repr, decoder=lambda text: f"mine: {text}"
            )

    async with asyncpg.create_pool(direct(), min_size=1, max_size=2, init=own_json) as pool:
        async with PostgresStore(pool, schema=schema) as store:
            attributes: dict[str, outlast.model.run.Attribute] = {"tenant": "acme"}
            run = Run(id="r", attributes=attributes)
            await store.commit([Commit(run_id="r", create=run, tasks=(Task(run_id="r"),))])
            assert (await store.get("r")).attributes == {"tenant": "acme"}
        with pytest.raises(StoreClosed):
            await store.get("r")
        assert await pool.fetchval("SELECT 1") == 1


async def test_a_connection_of_the_user_is_not_closed(schema: str) -> None:
    """One connection is enough: calls go one after the other."""
    connection = await asyncpg.connect(direct())
    async with PostgresStore(connection, schema=schema) as store, store.queue() as queue:
        await store.append("r", [event("r")])
        assert await queue.enqueue("q", [Task(id="t")]) == 1
        (claimed,) = await store.claim_runs("w", 30, run_ids=["r"])
        assert await store.renew([claimed.claim], 30) != [None]
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


def test_what_is_no_place() -> None:
    """Neither a URL nor connections."""
    with pytest.raises(InvalidValue, match="asyncpg"):
        PostgresStore(42)


async def test_a_queue_on_its_own(schema: str) -> None:
    """It makes the tables and needs no store."""
    async with PostgresQueue(direct(), schema=schema, notify=False) as queue:
        assert await queue.enqueue("q", [Task(id="one"), Task(id="one")]) == 1
        assert await queue.len("q") == 1


async def test_what_is_described() -> None:
    """An operator sees version, durability, pooler and schema, and no password."""
    async with PostgresStore(direct(), schema=SCHEMA, notify=False) as store:
        told = store.describe()
        assert told["durability"] == "power_loss"
        assert (told["pooled"], told["warnings"]) == (False, [])
        assert store.durability is Durability.POWER_LOSS
    async with PostgresStore(pooled(), schema=SCHEMA) as store:
        told = store.describe()
        assert (told["pooled"], told["listening"]) == (True, False)


@pytest.mark.proves("C-01")
@pytest.mark.parametrize("setting", ["synchronous_commit"])
async def test_a_server_that_forgets_is_reported(
    make_role: MakeRole, setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    """When an acknowledged commit would not survive a crash of the server, the log says so at the
    start, with the setting to change, and the store declares less."""
    url = await make_role("SUPERUSER", f"ALTER ROLE {{role}} SET {setting} = off")
    with caplog.at_level(logging.WARNING, "outlast.postgres"):
        async with PostgresStore(url, schema=SCHEMA, notify=False) as store:
            assert store.durability is Durability.PROCESS_CRASH
            assert any(setting in str(one) for one in store.describe()["warnings"])  # type: ignore[attr-defined]
    assert setting in caplog.text


# -- what goes wrong ------------------------------------------------------------------------------


async def test_a_database_that_is_not_there() -> None:
    """The error says what to do."""
    url = direct().rpartition("/")[0] + "/nowhere"
    with pytest.raises(NotAStore, match="create the database"):
        await PostgresStore(url).open()


async def test_a_server_that_is_not_there() -> None:
    """It may come: the same call can succeed later. The password is told to nobody."""
    url = f"postgresql://me:{SECRET}@127.0.0.1:1/orders"
    store = PostgresStore(url)
    with pytest.raises(Unavailable, match="host and port") as caught:
        await store.open()
    cause: BaseException | None = caught.value
    while cause is not None:
        assert SECRET not in f"{cause!r} {cause}"
        cause = cause.__cause__ or cause.__context__
    assert SECRET not in f"{store!r} {store.database!r} {store.database.where}"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET[:4]}/{SECRET}@host/db",
        f"postgresql://me:{SECRET}@host:port/db",
        f"mysql://me:{SECRET}@host/db",
    ],
)
def test_a_url_that_cannot_be_read_is_not_quoted(url: str) -> None:
    """What cannot be parsed may be the password."""
    with pytest.raises(InvalidValue) as caught:
        PostgresStore(url)
    assert SECRET[:4] not in f"{caught.value}"
    assert caught.value.__cause__ is None


async def test_a_user_without_rights(make_role: MakeRole) -> None:
    """The error names the remedy, and the store can be opened by somebody else."""
    url = await make_role()
    with pytest.raises(StoreFault, match="grant"):
        await PostgresStore(url, schema=SCHEMA).open()


async def test_no_connection_left(make_role: MakeRole) -> None:
    """A server without free connections is unavailable for now."""
    url = await make_role("CONNECTION LIMIT 1")
    taken = await asyncpg.connect(url)
    with pytest.raises(Unavailable, match="pool_size"):
        await PostgresStore(url, schema=SCHEMA).open()
    await taken.close()


async def test_a_closed_store_can_be_opened_again() -> None:
    """By a call too, if it was never closed."""
    store = PostgresStore(direct(), schema=SCHEMA, notify=False)
    (outcome,) = await store.commit([Commit(run_id="lazy", create=Run(id="lazy"))])
    assert isinstance(outcome, Committed)
    await store.delete("lazy")
    await store.close()
    with pytest.raises(StoreClosed):
        await store.get("lazy")
