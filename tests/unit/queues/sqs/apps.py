"""Apps that hear each other by a wake-up channel on the SQS server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import outlast
from outlast.ports.clock import Clock, SystemClock
from outlast.queues.sqs import SqsWakeups
from outlast.queues.sqs.client import SqsClient
from outlast.stores.sqlite import SqliteStore
from tests.unit.queues.sqs.places import client


@asynccontextmanager
async def process(
    path: Path,
    queue: str,
    *,
    clock: Clock | None = None,
    client: SqsClient | None = None,
    **options: Any,
) -> AsyncIterator[outlast.App]:
    """What a process of its own would have: a store, a wake-up channel, an app."""
    channel = SqsWakeups(queue, client or _client(), create=True)
    async with (
        SqliteStore(path, clock=clock or SystemClock()) as store,
        outlast.App(store, wakeup_channel=channel, **options) as app,
    ):
        yield app


def _client() -> SqsClient:
    return client()


def send(queue: str, body: str) -> None:
    """Put a message into a queue, as anybody may."""
    url = client().get_queue_url(QueueName=queue)["QueueUrl"]
    client().send_message(QueueUrl=url, MessageBody=body)


def waiting(queue: str) -> tuple[int, int]:
    """How many messages a queue has: that can be received, and that are hidden."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    url = client().get_queue_url(QueueName=queue)["QueueUrl"]
    found = client().get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return int(found[names[0]]), int(found[names[1]])
