"""A worker hears of what a view has committed."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction

from outlast.contrib.django import app, runs
from outlast.contrib.django.conf import read_settings
from outlast.contrib.django.store import worker_store
from outlast.ports import SystemClock
from outlast.ports.notifier import hears_all
from tests.unit.contrib.django.places import POSTGRES, use, wipe_and_leave
from tests.unit.contrib.django.shop.workflows import doubled


@pytest.mark.server
@pytest.mark.proves("I24")
async def test_the_database_sends_the_wakeup_with_the_commit() -> None:
    """Not before it, and for a worker in whatever process."""
    await asyncio.to_thread(wipe_and_leave, POSTGRES)

    def start() -> None:
        """In the thread of a view, whose process has no worker."""
        try:
            with transaction.atomic(using=POSTGRES):
                runs.start(doubled(1), id="r")
        finally:
            connections[POSTGRES].close()

    with use(POSTGRES):
        async with worker_store(read_settings()) as store:
            before = store.notifier.wakeups
            await store.notifier.wait(SystemClock(), 30, since=before)
            assert hears_all(store.notifier)
            from outlast.contrib.django.wakeups import _listening

            _listening.discard(store.notifier)  # so that only the database can tell
            before = store.notifier.wakeups
            await asyncio.to_thread(start)
            assert await store.notifier.wait(SystemClock(), 30, since=before)


@pytest.mark.proves("I24")
async def test_a_worker_in_the_same_process_is_woken_by_the_commit(alias: str) -> None:
    """Its notifier sends a wake-up when the transaction ends, and not if it is rolled back."""
    async with app() as opened:
        notifier = opened.store.notifier

        def rolled_back() -> None:
            with transaction.atomic(using=alias):
                runs.start(doubled(1), id="gone")
                transaction.set_rollback(True, using=alias)

        def committed() -> None:
            with transaction.atomic(using=alias):
                runs.start(doubled(2), id="there")

        def leave() -> None:
            connections[alias].close()

        await sync_to_async(rolled_back)()
        await sync_to_async(committed)()
        assert await opened.get("there").result(timeout=30) == 4
        assert notifier.wakeups > 0
        await sync_to_async(leave)()
