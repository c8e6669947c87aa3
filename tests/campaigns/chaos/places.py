"""Where a round takes place: a store of its own, and what can be done to it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import boto3

from outlast.stores.redis import RedisStore
from outlast.testkit.checker import Dump, dump
from outlast.urls import resolve
from tests.stores.sqlite_processes.crew import pause_for
from tools.serving import sqs
from tools.serving.postgres import Cluster
from tools.serving.redis import start_own


class Place:
    """A store that processes share."""

    NAME: ClassVar[str]
    FAULTS: ClassVar[tuple[str, ...]] = ("kill", "stop", "term", "grip", "clock")
    """What can be done to it and to those who work on it."""
    OWN_CLOCK: ClassVar[bool] = True
    """Whether it has a clock of its own, or lives by that of the machine."""

    def __init__(self, folder: Path) -> None:
        self.environment: dict[str, str] = {}
        self.url = self._start(folder)

    def _start(self, folder: Path) -> str:
        raise NotImplementedError

    def stop(self) -> None:
        """It is over."""

    def disturb(self, what: str, chance: random.Random, lease: float) -> None:
        """Do something to the store, and return when it is whole again. In a thread."""
        raise NotImplementedError(what)

    async def collect(self) -> tuple[Dump, list[str]]:
        """All that it holds, and what is wrong with how it holds it."""
        async with resolve(self.url) as store:
            return await dump(store, queues=("far",)), []


class Sqlite(Place):
    """One file."""

    NAME = "sqlite"
    FAULTS = (*Place.FAULTS, "lock")
    OWN_CLOCK = False

    def _start(self, folder: Path) -> str:
        self._path = folder / "store.db"
        return f"sqlite:///{self._path}"

    def disturb(self, what: str, chance: random.Random, lease: float) -> None:
        """Somebody else holds the file's lock past the lease."""
        assert what == "lock"
        with closing(sqlite3.connect(self._path, timeout=10, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            pause_for(lease * chance.uniform(0.3, 1.5))
            other.execute("ROLLBACK")

    async def collect(self) -> tuple[Dump, list[str]]:
        final, _ = await super().collect()
        with closing(sqlite3.connect(self._path)) as connection:
            rows = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        return final, rows


class Postgres(Place):
    """A server of our own."""

    NAME = "postgres"
    FAULTS = (*Place.FAULTS, "restart", "cut", "part", "wire")

    def _start(self, folder: Path) -> str:
        self._cluster = Cluster(folder)
        return self._cluster.url

    def stop(self) -> None:
        self._cluster.stop()

    def disturb(self, what: str, chance: random.Random, lease: float) -> None:
        """The server ends without mercy, and is started again, now and then past the lease."""
        assert what == "restart"
        way = chance.choice(("kill -9", "immediate", "one"))
        if way == "one":
            self._cluster.kill_one()
            return
        if way == "kill -9":
            self._cluster.kill()
        else:
            self._cluster.stop_at_once()
        pause_for(lease * 1.5 if chance.random() < 0.2 else 0.0)
        self._cluster.start()


class PostgresWithSqs(Postgres):
    """The same, and workers hear of each other's work by nothing but SQS."""

    NAME = "postgres+sqs"
    # A worker with a network of its own would not reach SQS.
    FAULTS = (*(one for one in Postgres.FAULTS if one != "wire"), "wakeups")

    def _start(self, folder: Path) -> str:
        url = super()._start(folder)
        endpoint, self._sqs = sqs.start_own(folder)
        self.environment = {
            "CHAOS_WAKEUP_CHANNEL": f"sqs://wakeups?region=eu-central-1&endpoint={endpoint}&create=true",
            "AWS_ACCESS_KEY_ID": "chaos",
            "AWS_SECRET_ACCESS_KEY": "chaos",
        }
        self._client = boto3.client(
            "sqs",
            region_name="eu-central-1",
            endpoint_url=endpoint,
            aws_access_key_id="chaos",
            aws_secret_access_key="chaos",
        )
        return url

    def stop(self) -> None:
        self._sqs.stop()
        super().stop()

    def disturb(self, what: str, chance: random.Random, lease: float) -> None:
        """Messages are lost, or SQS does not answer for a while."""
        if what != "wakeups":
            super().disturb(what, chance, lease)
        elif chance.random() < 0.5:
            self._lose_messages()
        else:
            os.kill(self._sqs.pid, signal.SIGSTOP)
            pause_for(lease * chance.uniform(0.3, 1.5))
            os.kill(self._sqs.pid, signal.SIGCONT)

    def _lose_messages(self) -> None:
        """All that can be received now. Not a purge: SQS allows one a minute."""
        url = self._client.get_queue_url(QueueName="wakeups")["QueueUrl"]
        while found := self._client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            for one in found:
                self._client.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])


class Redis(Place):
    """A server of our own that syncs every write."""

    NAME = "redis"
    FAULTS = (*Place.FAULTS, "restart", "cut", "part", "wire")

    def _start(self, folder: Path) -> str:
        self._folder = folder
        url, self._server = start_own(folder)
        return url

    def stop(self) -> None:
        self._server.stop()

    def disturb(self, what: str, chance: random.Random, lease: float) -> None:
        """The server is killed, and started again on what its file has."""
        assert what == "restart"
        self._server.kill()
        pause_for(lease * 1.5 if chance.random() < 0.2 else 0.0)
        port = urlsplit(self.url).port
        assert port is not None
        _, self._server = start_own(self._folder, port)

    async def collect(self) -> tuple[Dump, list[str]]:
        final, _ = await super().collect()
        store = resolve(self.url)
        assert isinstance(store, RedisStore)
        async with store:
            wrong = await store.reconcile()
        return final, [f"{wrong} places of the indexes were not right"] if wrong else []


PLACES: dict[str, type[Place]] = {
    place.NAME: place for place in (Sqlite, Postgres, Redis, PostgresWithSqs)
}


async def opened(kind: type[Place], folder: Path) -> Place:
    """A place, with its tables made before anybody works on it."""
    place = await asyncio.to_thread(kind, folder)
    async with resolve(place.url):
        return place
