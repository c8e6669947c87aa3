"""An empty store for each test, and a way to make roles with settings of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

import pytest

from outlast.model.ids import new_id
from outlast.stores.postgres import PostgresStore
from outlast.testing.virtual_clock import ManualClock
from tests.stores.postgres.places import FreshStore, ask, direct

MakeRole = Callable[..., Awaitable[str]]


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until it is moved."""
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[PostgresStore]:
    """An empty store, open."""
    async with FreshStore(clock=clock) as store:
        yield store


@pytest.fixture
async def schema() -> AsyncIterator[str]:
    """The name of a schema that is not there."""
    name = f"own_{new_id().replace('-', '')}"
    yield name
    await ask(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@pytest.fixture
async def make_role() -> AsyncIterator[MakeRole]:
    """Makes a role, with options and statements about it, and gives a URL that logs in as it."""
    made = []

    async def make(options: str = "", *statements: str, password: str = "") -> str:
        role = f"role_{new_id().replace('-', '')}"
        await ask(f"CREATE ROLE {role} LOGIN {options}")
        made.append(role)
        for statement in statements:
            await ask(statement.format(role=role))
        parts = urlsplit(direct())
        user = f"{role}:{password}" if password else role
        return urlunsplit(parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}"))

    yield make
    for role in made:
        await ask(f"DROP OWNED BY {role} CASCADE")
        await ask(f"DROP ROLE {role}")
