"""The log of the application's file is bounded while only the application writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from outlast.contrib.sqlalchemy import store_of
from outlast.stores.sqlite.wal import LOG_LIMIT_BYTES
from tests.unit.contrib.sqlalchemy.places import dispose, engine_of

MEGABYTE = "x" * 1024 * 1024


@pytest.mark.parametrize("kind", ["sqlite threads", "sqlite+aiosqlite"])
async def test_the_log_is_bounded_while_no_store_is_open(kind: str, tmp_path: Path) -> None:
    """Also with one connection that is never given back; and all that was committed is there."""
    engine: Any = engine_of(kind, tmp_path)
    async with store_of(engine):
        pass
    log = Path(f"{engine.url.database}-wal")
    sizes: list[int] = []

    def write(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE notes (note TEXT)"))
        for number in range(24):
            note = f"{number} {MEGABYTE}"
            connection.execute(text("INSERT INTO notes VALUES (:note)"), {"note": note})
            connection.commit()
            sizes.append(log.stat().st_size)
        assert connection.execute(text("SELECT count(*) FROM notes")).scalar() == 24
        assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"

    if isinstance(engine, AsyncEngine):
        async with engine.connect() as connection:
            await connection.run_sync(write)
    else:
        with engine.connect() as plain:
            write(plain)
    assert max(sizes) < 2 * LOG_LIMIT_BYTES
    await dispose(engine)
