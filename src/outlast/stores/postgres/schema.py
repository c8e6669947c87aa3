"""The tables and how they came to be: numbered files in migrations/, applied in order, never back.

The table `migrations` says which have been. All that are missing are applied in one transaction,
under a lock that lasts as long as the transaction, so that it works behind a pooler too; whoever
comes second waits, looks again and finds nothing left to do. Steps only add: processes that run an
older outlast go on working on the same tables.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from outlast.errors import SchemaTooNew
from outlast.stores.postgres.queries import Queries
from outlast.stores.postgres.sources import Link


class Migration(NamedTuple):
    """One step: its number, and its statements."""

    version: int
    script: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All steps, in order."""
    found = []
    for file in files("outlast.stores.postgres").joinpath("migrations").iterdir():
        number, _, rest = file.name.partition("_")
        if rest.endswith(".sql"):
            found.append(Migration(int(number), file.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def latest() -> int:
    """The version that this outlast writes."""
    return migrations()[-1].version


async def version_of(connection: Link, queries: Queries, where: str) -> int:
    """The version of the tables: 0 if there are none. Refuses what is newer than us."""
    [[exists]] = await connection.fetch(queries["has_migrations"])
    if not exists:
        return 0
    [[version]] = await connection.fetch(queries["read_version"])
    version = version or 0
    if version > latest():
        raise SchemaTooNew(
            f"{where} has schema version {version}, and this outlast knows {latest()}: a newer one "
            "has written it. Upgrade outlast in this process"
        )
    return int(version)


async def migrate(connection: Link, queries: Queries, where: str) -> None:
    """Bring the tables up to date, waiting for others who do the same."""
    if await version_of(connection, queries, where) == latest():
        return
    async with connection.transaction():
        await connection.fetch(queries["lock_migrations"])
        [[exists]] = await connection.fetch(queries["has_schema"], queries.schema)
        if not exists:
            await connection.execute(f'CREATE SCHEMA "{queries.schema}"')
        version = await version_of(connection, queries, where)
        for migration in migrations():
            if migration.version > version:
                await connection.execute(queries.render(migration.script))
                await connection.fetch(queries["write_version"], migration.version)
