"""Where processes meet in these tests: one empty store of each kind, by a value that travels."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from outlast.ports import Store
from outlast.stores.postgres import PostgresStore
from outlast.stores.redis import RedisStore
from outlast.stores.sqlite import SqliteStore
from tests.stores.postgres.places import SCHEMA, FreshStore, direct
from tests.stores.redis.servers import SINGLE, own_prefix, url_of

KINDS = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.server),
    pytest.param("redis", marks=pytest.mark.server),
]


class Place(NamedTuple):
    """A store that any process can open."""

    kind: str
    where: str
    prefix: str = ""

    def store(self) -> Store:
        """A handle on it."""
        if self.kind == "postgres":
            return PostgresStore(self.where, schema=SCHEMA)
        if self.kind == "redis":
            return RedisStore(self.where, prefix=self.prefix)
        return SqliteStore(self.where)

    def fresh(self) -> AbstractAsyncContextManager[Store]:
        """A handle on it for the one who comes first: it is empty."""
        return FreshStore(notify=True) if self.kind == "postgres" else self.store()


def place_of(kind: str, folder: Path) -> Place:
    """A place of that kind."""
    if kind == "postgres":
        return Place(kind, direct())
    if kind == "redis":
        return Place(kind, url_of(SINGLE), own_prefix())
    return Place(kind, str(folder / "store.db"))
