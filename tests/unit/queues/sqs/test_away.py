"""SQS does not answer: a worker begins without it, goes on, and ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

import outlast
from outlast.errors import UnknownOutcome
from outlast.queues.sqs import SqsWakeups, wakeups
from outlast.queues.sqs.client import Calls
from tests.stores.sqlite_processes.crew import Crew
from tests.unit.queues.sqs.apps import process, send
from tests.unit.queues.sqs.places import Recording, client, own_prefix
from tests.unit.queues.sqs.test_wakeups import other, until

pytestmark = pytest.mark.server


class Away(Recording):
    """A client whose server cannot be reached for a while."""

    is_away = True

    def __getattr__(self, operation: str) -> Any:
        if self.is_away and operation != "close":
            return self._unreachable
        return super().__getattr__(operation)

    def _unreachable(self, **_: Any) -> Any:
        raise EndpointConnectionError(endpoint_url="http://host/")


@pytest.mark.proves("I23", "I24")
async def test_a_worker_begins_though_sqs_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs are found by looking; that nothing is heard is told once; when SQS is there, its
    wake-up channel finds its queue and hears."""
    monkeypatch.setattr(wakeups, "LONGEST_RETRY", 0.1)
    queue, away = f"{own_prefix()}wakeups", Away(client())
    with caplog.at_level(logging.WARNING, "outlast.sqs"):
        async with process(tmp_path / "o.db", queue, client=away, workflows=[other]) as app:
            assert app.store.notifier.wakeup_channel is not None
            run = await app.start(other(), here=False)
            await run.result()
            channel = app.store.notifier.wakeup_channel
            away.is_away = False
            await until(lambda: "receive_message" in away.since(0))
            send(queue, '{"outlast":1,"wakeup":"somebody"}')
            await until(lambda: channel.received > 0)
            assert channel.is_listening
    assert len([one for one in caplog.records if "nothing is heard" in one.message]) == 1


class Hanging:
    """A client that never answers."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __getattr__(self, operation: str) -> Any:
        def call(**_: Any) -> Any:
            self.asked.set()
            threading.Event().wait()

        return call


def leave(pipe: Pipe, path: str) -> str:
    """An app that is closed, and a call that was given up, while SQS says nothing."""
    hanging = Hanging()

    async def live() -> None:
        channel = SqsWakeups(url="http://127.0.0.1:9/1/wakeups", client=hanging)
        async with outlast.App(f"sqlite:///{path}", wakeup_channel=channel) as app:
            await app.start(other(), here=False)  # so there is something to send a wake-up for
            await asyncio.to_thread(hanging.asked.wait)
        calls = Calls(hanging, None, None)
        calls.open()
        with suppress(UnknownOutcome):
            await calls.call("send_message", "wakeups", timeout=0.01)
        calls.close()

    asyncio.run(live())
    return "closed"


@pytest.mark.proves("I30")
async def test_who_is_told_to_stop_does_not_wait_for_sqs(tmp_path: Path) -> None:
    """Calls and a long poll that never end keep neither the app from closing nor the process from
    ending."""
    crew = Crew()
    worker = crew.hire(leave, str(tmp_path / "o.db"))
    assert await asyncio.to_thread(worker.pipe.recv) == "closed"
    await asyncio.to_thread(worker.process.join, 60)
    assert worker.process.exitcode == 0
    worker.pipe.close()
