"""Stores named by a line of text, so that several processes can open the same ones."""

from __future__ import annotations

import uuid
from pathlib import Path

from outlast.ports.store import Store
from outlast.stores.sqlite import SqliteStore


def store_at(place: str) -> Store:
    """``sqlite PATH``, ``postgres SCHEMA``, ``redis PREFIX`` or ``cluster PREFIX``."""
    kind, _, name = place.partition(" ")
    if kind == "sqlite":
        return SqliteStore(name)
    if kind == "postgres":
        from outlast.stores.postgres import PostgresStore
        from tests.stores.postgres.places import direct

        return PostgresStore(direct(), schema=name, pool_size=4)
    from tests.stores.redis.servers import clustered, single

    return single(prefix=name) if kind == "redis" else clustered(prefix=name)


def new_place(kind: str, folder: Path) -> str:
    """A place where nothing is yet."""
    name = f"m{uuid.uuid4().hex[:12]}"
    return f"sqlite {folder}/{name}.db" if kind == "sqlite" else f"{kind} {name}"


async def clear(place: str) -> None:
    """Leave nothing on a server."""
    kind, _, name = place.partition(" ")
    if kind == "postgres":
        from tests.stores.postgres.places import ask

        await ask(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    elif kind in ("redis", "cluster"):
        async with store_at(place) as store:
            for run_id in await store.run_ids(limit=10_000):
                await store.delete(run_id)
