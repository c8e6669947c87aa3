"""A worker that is killed between two statements of a transactional step."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from multiprocessing.connection import Connection as Pipe
from typing import Any


def live(pipe: Pipe, environment: dict[str, str], doom: int) -> int:
    """Buy, and die in the `doom`-th place between two statements. With 0, go on with what others have
    begun, and live."""
    os.environ.update(environment)
    import django

    django.setup()
    from django.db import connections

    from outlast.contrib.django import app
    from outlast.contrib.django.threads import HeldTransaction
    from outlast.stores.postgres import psycopg
    from outlast.stores.sqlite import liveness
    from tests.unit.contrib.django.shop.workflows import bought

    # Only leases count: each process has one place to die in, and leaves what the others have begun to the last one.
    liveness.LOCAL = frozenset()
    places = 0

    def between() -> None:
        nonlocal places
        places += 1
        if places == doom:
            os.kill(os.getpid(), signal.SIGKILL)

    def statement(execute: Any, *args: Any) -> Any:
        """One of the step's own."""
        between()
        return execute(*args)

    run = HeldTransaction.run

    async def hop(self: HeldTransaction, work: Any, *args: Any) -> Any:
        """One of ours, and the beginning and the end."""

        def do() -> Any:
            between()
            wrappers = connections[self.alias].execute_wrappers
            if statement not in wrappers:
                wrappers.append(statement)
            return work(*args)

        found = await run(self, do)
        between()
        return found

    HeldTransaction.run = hop  # type: ignore[method-assign]
    rows_of = psycopg.rows_of

    def fetch(*args: Any, **options: Any) -> Any:
        """One of ours on PostgreSQL, which has a way of its own into the thread."""
        if threading.current_thread().name.startswith("outlast-transaction"):
            between()
        return rows_of(*args, **options)

    psycopg.rows_of = fetch

    async def work() -> int:
        async with app(lease=600) as opened:
            if doom:
                run = await opened.start(bought(f"o-{doom}", doom), id=f"buy-{doom}")
                return await run.result(timeout=60)
            ended = [
                await opened.get(run.id).result(timeout=60) async for run in opened.client.find()
            ]
            return len(ended)

    return asyncio.run(work())
