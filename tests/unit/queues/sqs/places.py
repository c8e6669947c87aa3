"""The SQS server that the tests of this folder run on, and clients and queues of their own on it."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.config import Config

from outlast.ports.clock import Clock
from outlast.queues.sqs import SqsQueue
from outlast.queues.sqs.client import SqsClient
from tools.serving.sqs import AHEAD

SERVER = "OUTLAST_TEST_SQS"


def endpoint() -> str:
    """The URL of the server. Without one the tests fail: they are not skipped in silence."""
    url = os.environ.get(SERVER)
    if not url:
        pytest.fail(
            f"{SERVER} is not set: run `./dev test`, which starts the servers, or "
            "`./dev python -m tools.servers sqs -- COMMAND`"
        )
    return url


def client(clock: Clock | None = None) -> SqsClient:
    """A client of boto3. The server's time is ahead by what has passed on `clock`."""
    shared = _shared()
    return shared if clock is None else Ahead(shared, clock)


class Ahead:
    """A client for which time has passed. One client of boto3 serves all: making one takes long."""

    def __init__(self, inner: SqsClient, clock: Clock) -> None:
        self._inner, self._clock = inner, clock

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            _calling.ahead = self._clock.monotonic()
            try:
                return getattr(self._inner, operation)(**parameters)
            finally:
                _calling.ahead = 0.0

        return call


_calling = threading.local()


@cache
def _shared() -> SqsClient:
    session = boto3.session.Session(
        aws_access_key_id="AKIATEST", aws_secret_access_key="secret", region_name="eu-central-1"
    )
    config = Config(max_pool_connections=50, retries={"max_attempts": 1})
    made: Any = session.client("sqs", endpoint_url=endpoint(), config=config)

    def ahead(request: Any, **_: Any) -> None:
        request.headers[AHEAD] = str(getattr(_calling, "ahead", 0.0))

    made.meta.events.register("before-send.sqs", ahead)
    checked: SqsClient = made
    return checked


def own_prefix() -> str:
    """A prefix that nobody else uses."""
    return f"t{uuid.uuid4().hex[:12]}-"


def own_queue(clock: Clock, **options: Any) -> SqsQueue:
    """A queue with a prefix of its own, whose time is `clock`."""
    settings: dict[str, Any] = {"create": True, "max_attempts": 3, "long_poll": 0, **options}
    settings.setdefault("prefix", own_prefix())
    return SqsQueue(settings.pop("client", None) or client(clock), clock=clock, **settings)


class Recording:
    """A client that remembers each call: the operation, and its parameters."""

    def __init__(self, inner: SqsClient) -> None:
        self._inner = inner
        self.made: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            self.made.append((operation, parameters))
            return getattr(self._inner, operation)(**parameters)

        return call

    def since(self, count: int) -> list[str]:
        """The operations of the calls after the first `count`."""
        return [operation for operation, _ in self.made[count:]]

    def last(self, operation: str) -> dict[str, Any]:
        """The parameters of the last call of an operation."""
        return [parameters for made, parameters in self.made if made == operation][-1]
