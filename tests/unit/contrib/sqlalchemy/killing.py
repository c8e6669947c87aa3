"""Kills a process that pays, before each statement of its transaction in turn, and lets another go on.

Run as a program, so that a fork is cheap and has nothing of the tests: ``killing KIND FOLDER SCHEMA``. It
writes one line of JSON for each kill: what was booked after it, and what when the run was over.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

import outlast
from outlast.contrib.sqlalchemy import store_of
from outlast.contrib.sqlalchemy.postgres import TransactionSource
from outlast.errors import Busy
from tests.unit.contrib.sqlalchemy import shop
from tests.unit.contrib.sqlalchemy.places import dispose, engine_of

LEASE = 0.5


class Kills:
    """Counts what happens in the application's transactions, and kills at one of them."""

    def __init__(self, engine: Any, number: int) -> None:
        self._left = number
        plain = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
        event.listen(plain, "before_cursor_execute", self.count)
        event.listen(plain, "commit", self.count)
        event.listen(Session, "after_commit", self.count)
        # Ours on the driver's connection, which SQLAlchemy does not see.
        link = TransactionSource._link

        async def counted(source: TransactionSource) -> Any:
            self.count()
            return await link(source)

        TransactionSource._link = counted  # type: ignore[method-assign, assignment]

    def count(self, *_: Any, **__: Any) -> None:
        """One more."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def pays(kind: str, folder: Path, schema: str, number: int) -> Callable[[], Awaitable[Any]]:
    """A process that pays, and is killed before the statement of that number."""

    async def work() -> Any:
        engine = engine_of(kind, folder)
        await shop.booked(engine)  # the engine has looked at its server
        buys = shop.workflow_for(engine)
        async with (
            store_of(engine, schema=schema) as store,
            outlast.App(store, workflows=[buys], lease=LEASE) as app,
        ):
            if number:
                Kills(engine, number)
            paid = await (await started(app, buys)).result(timeout=60)
        await dispose(engine)
        return paid

    return work


async def started(app: outlast.App, buys: Any) -> Any:
    """The run. As long as the server has not seen that the killed one is gone, its lock is in the way."""
    while True:
        try:
            return await app.start(buys("o", 7), id="killed")
        except Busy:
            await app.store.clock.sleep(0.05)


def looks(kind: str, folder: Path, schema: str, *, anew: bool) -> Callable[[], Awaitable[Any]]:
    """What is booked; and with `anew`, an end of it."""

    async def work() -> Any:
        engine = engine_of(kind, folder)
        async with store_of(engine, schema=schema) as store:
            if anew:
                await shop.make_tables(engine)
                await store.delete("killed")
            booked = await shop.booked(engine)
        await dispose(engine)
        return booked

    return work


def in_child(work: Callable[[], Awaitable[Any]]) -> Any:
    """What it gives, done by a process of its own; None if that was killed."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # From 3.12 on Python warns where there are threads; the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        try:
            os.write(writing, json.dumps(asyncio.run(work())).encode())  # type: ignore[arg-type]
            code = 0
        except BaseException:  # noqa: BLE001 - it ends here, and says why
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    assert os.waitstatus_to_exitcode(status) == 0, "the child has failed"
    return json.loads(said)


def main(kind: str, folder: Path, schema: str) -> None:
    """All kills, one after the other, until there is nothing left to be killed before."""
    number, paid = 0, None
    while paid is None:
        number += 1
        in_child(looks(kind, folder, schema, anew=True))
        paid = in_child(pays(kind, folder, schema, number))
        first = in_child(looks(kind, folder, schema, anew=False))
        if paid is None:
            assert in_child(pays(kind, folder, schema, 0)) == 7
        last = in_child(looks(kind, folder, schema, anew=False))
        print(json.dumps([number, paid is None, first, last]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
