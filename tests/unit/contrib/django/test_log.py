"""Where the project's file is in WAL mode, its log is bounded, worker or not."""

from __future__ import annotations

import asyncio
from pathlib import Path

from django.core.management import call_command
from django.db import connections, transaction

from outlast.contrib.django.conf import read_settings
from outlast.contrib.django.store import worker_store
from outlast.stores.sqlite.wal import LOG_LIMIT_BYTES
from tests.unit.contrib.django.places import another, use
from tests.unit.contrib.django.settings import on_sqlite
from tests.unit.contrib.django.shop.models import Order

MEGABYTE = "x" * 1024 * 1024


def test_the_log_is_bounded_while_only_the_project_writes(tmp_path: Path) -> None:
    """A worker was there once, and no more: whoever writes keeps the log short, with and without
    `atomic`, and all that was committed is there."""
    file = tmp_path / "site.db"
    log = Path(f"{file}-wal")
    with another("site", on_sqlite(str(file))), use("site"):
        call_command("migrate", database="site", verbosity=0)
        connections["site"].close()

        async def come_and_go() -> None:
            async with worker_store(read_settings()):
                pass

        asyncio.run(come_and_go())
        sizes = []
        for number in range(24):
            if number % 2:
                Order.objects.using("site").create(name=f"{number} {MEGABYTE}")
            else:
                with transaction.atomic(using="site"):
                    Order.objects.using("site").create(name=f"{number} {MEGABYTE}")
            sizes.append(log.stat().st_size)
        assert max(sizes) < 2 * LOG_LIMIT_BYTES
        assert Order.objects.using("site").count() == 24
        with connections["site"].cursor() as cursor:
            cursor.execute("PRAGMA integrity_check")
            assert cursor.fetchall() == [("ok",)]
