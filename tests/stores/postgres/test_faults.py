"""When the server fails or somebody is in the way: typed errors, and a store that goes on."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from outlast.errors import (
    Busy,
    InvalidValue,
    NotAStore,
    OutlastError,
    PayloadTooLarge,
    ReadOnlyStore,
    StoreFault,
    StoreFull,
    TimedOut,
    Unavailable,
    Undecodable,
    UnknownOutcome,
)
from outlast.model import Commit, Committed, Event, Run
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres.driver_errors import translate
from tests.stores.postgres.conftest import MakeRole
from tests.stores.postgres.places import SCHEMA, ask, direct

pytestmark = pytest.mark.server


def error_of(state: str) -> Exception:
    """What asyncpg raises for a state of the server."""
    error = asyncpg.PostgresError.new({"C": state, "M": "it failed", "S": "ERROR"})
    assert isinstance(error, Exception)
    return error


STATES = [
    ("40001", Busy),
    ("40P01", Busy),
    ("55P03", Busy),
    ("57014", Busy),
    ("53300", Unavailable),
    ("57P03", Unavailable),
    ("53200", Unavailable),
    ("53100", StoreFull),
    ("25006", ReadOnlyStore),
    ("28P01", StoreFault),
    ("28000", StoreFault),
    ("42501", StoreFault),
    ("3D000", NotAStore),
    ("54000", PayloadTooLarge),
    ("XX001", Undecodable),
    ("22003", InvalidValue),
    ("42P01", StoreFault),
    ("57P01", UnknownOutcome),
    ("57P02", UnknownOutcome),
    ("08006", UnknownOutcome),
]


@pytest.mark.parametrize(("state", "kind"), STATES)
@pytest.mark.proves("S-09", "K-15")
def test_every_state_has_a_type(state: str, kind: type[Exception]) -> None:
    """Callers branch on our types; the server's words are kept for people."""
    fault = translate(error_of(state), "here", sent=True, writes=True)
    assert type(fault) is kind
    assert isinstance(fault, OutlastError)
    assert "it failed" in str(fault)


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), asyncpg.ConnectionDoesNotExistError("gone")]
)
def test_a_lost_connection_is_unknown_only_for_what_may_have_been_done(error: Exception) -> None:
    """A read, or a write that was never sent, has not happened."""
    assert isinstance(translate(error, "here", sent=True, writes=True), UnknownOutcome)
    assert isinstance(translate(error, "here", sent=True, writes=False), Unavailable)
    assert isinstance(translate(error, "here", sent=False, writes=True), Unavailable)


def test_a_deadline_is_unknown_only_for_what_may_have_been_done() -> None:
    """The same for time."""
    late = TimeoutError()
    assert isinstance(translate(late, "here", sent=True, writes=True), UnknownOutcome)
    assert isinstance(translate(late, "here", sent=False, writes=True), TimedOut)


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyError("x"), Busy("busy")])
def test_other_errors_are_not_touched(error: Exception) -> None:
    """A bug of ours is not dressed up as a fault of the database."""
    assert translate(error, "here", sent=True, writes=True) is None


def event(run_id: str) -> Event:
    """An event of a run."""
    return Event(type="note.added", run_id=run_id)


async def test_a_number_that_is_too_large(store: PostgresStore) -> None:
    """A value that no column holds is the caller's mistake, and harms nothing."""
    with pytest.raises(InvalidValue):
        await store.commit([Commit(run_id="r", create=Run(id="r", priority=2**70))])
    assert not await store.exists("r")


async def test_a_name_that_no_index_holds(store: PostgresStore) -> None:
    """The same for a name of a workflow that is longer than a page."""
    name = "".join(chr(0x4E00 + n) for n in range(4000))
    with pytest.raises(PayloadTooLarge):
        await store.commit([Commit(run_id="r", create=Run(id="r", workflow=name))])
    assert not await store.exists("r")


async def test_a_database_that_is_read_only(make_role: MakeRole, store: PostgresStore) -> None:
    """Reading works; writing says which setting to change."""
    url = await make_role("SUPERUSER", "ALTER ROLE {role} SET default_transaction_read_only = on")
    async with PostgresStore(url, schema=SCHEMA, notify=False) as other:
        assert await other.find_one("r") is None
        with pytest.raises(ReadOnlyStore, match="primary"):
            await other.append("r", [event("r")])


# -- somebody holds a lock ------------------------------------------------------------------------


@pytest.mark.proves("I12", "K-13")
async def test_a_locked_run_stalls_nobody_else(store: PostgresStore) -> None:
    """Its commit is busy; the others of the batch are written, leases are renewed, others are
    claimed."""
    for id in ("a", "b", "c"):
        await store.append(id, [event(id)])
    (held,) = await store.claim_runs("w", 30, run_ids=["a"])
    (other,) = await store.claim_runs("w", 30, run_ids=["b"])
    user = await asyncpg.connect(direct())
    async with user.transaction():
        await user.execute(f"SELECT FROM {SCHEMA}.runs WHERE id = 'a' FOR UPDATE")
        first, second = await store.commit(
            [
                Commit(run_id="a", token=held.claim.token, events=(event("a"),)),
                Commit(run_id="b", token=other.claim.token, events=(event("b"),)),
            ]
        )
        assert isinstance(first, Busy)
        assert isinstance(second, Committed)
        store.clock.advance(10)  # type: ignore[attr-defined]
        ours, theirs = await store.renew([held.claim, other.claim], 30)
        assert ours == held.claim  # still ours, and not longer
        assert theirs is not None
        assert theirs.expires_at != other.claim.expires_at
        assert [one.run.id for one in await store.claim_runs("v", 30, run_ids=["a", "c"])] == ["c"]
    await user.close()
    (again,) = await store.commit(
        [Commit(run_id="a", token=held.claim.token, events=(event("a"),))]
    )
    assert isinstance(again, Committed)


@pytest.mark.proves("I11")
async def test_a_name_that_is_about_to_be_taken_stalls_nobody(store: PostgresStore) -> None:
    """A run that a transaction has begun and not committed is busy for others, not waited for."""
    user = await asyncpg.connect(direct())
    transaction = user.transaction()
    await transaction.start()
    (begun,) = await store.on(user).commit([Commit(run_id="a", create=Run(id="a"))])
    assert isinstance(begun, Committed)
    batch = [Commit(run_id=id, create=Run(id=id)) for id in ("a", "b")]
    first, second = await store.commit(batch)
    assert isinstance(first, Busy)
    assert isinstance(second, Committed)
    await transaction.rollback()
    (again,) = await store.commit(batch[:1])
    assert isinstance(again, Committed)
    await user.close()


# -- connections end ------------------------------------------------------------------------------

OURS = "application_name = 'outlast' AND pid <> pg_backend_pid()"


@pytest.mark.proves("I3", "C-20")
async def test_a_connection_that_ends_under_a_write(store: PostgresStore) -> None:
    """Nobody knows whether it was done: the caller is told so, and the store goes on."""
    await store.append("a", [event("a")])
    user = await asyncpg.connect(direct())
    async with user.transaction():
        await user.execute(f"SELECT FROM {SCHEMA}.runs WHERE id = 'a' FOR UPDATE")
        deletion = asyncio.ensure_future(store.delete("a"))  # which waits for the lock
        ended: list[object] = []
        while not ended:
            ended = await ask(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE {OURS} AND wait_event_type = 'Lock' AND query LIKE '%{SCHEMA}%'"
            )
    with pytest.raises(UnknownOutcome):
        await deletion
    assert await store.last_sequence("a") == 1
    assert await store.delete("a")
    await user.close()


@pytest.mark.proves("I3")
async def test_a_server_that_was_restarted(store: PostgresStore) -> None:
    """When all connections have ended meanwhile, reading goes on without a word."""
    await store.append("a", [event("a")])
    await ask(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE {OURS} AND query LIKE '%{SCHEMA}%'"
    )
    assert await store.last_sequence("a") == 1
    for _ in range(3):
        try:
            await store.append("a", [event("a")])
            break
        except UnknownOutcome:
            continue
    assert await store.last_sequence("a") == 2
