"""The Django project of the examples, over HTTP: a server, a worker that is killed, and another."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg
import pytest

from tests.stores.postgres.places import direct

SHOP = Path(__file__).parents[2] / "examples" / "django_shop"
SECONDS = 60


class Shop:
    """The project, on one database."""

    def __init__(self, database: str) -> None:
        self.environment = {**os.environ, "SHOP_DATABASE": database, "PYTHONWARNINGS": "error"}
        self.environment.pop("DJANGO_SETTINGS_MODULE", None)
        for name in ("OUTLAST_STORE", "OUTLAST_APP", "SHOP_DIE"):
            self.environment.pop(name, None)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def manage(self, *args: str) -> str:
        """What a command of manage.py says."""
        done = subprocess.run(
            [sys.executable, "manage.py", *args],
            cwd=SHOP, env=self.environment, capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def process(self, *args: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        """One that runs until it is stopped."""
        process = subprocess.Popen(
            [sys.executable, "manage.py", *args],
            cwd=SHOP, env={**self.environment, **more},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            process.wait(SECONDS)

    def ask(self, path: str, data: Any = None) -> tuple[int, Any]:
        """Status and answer of a request."""
        body = None if data is None else json.dumps(data).encode()
        try:
            with urlopen(Request(f"http://127.0.0.1:{self.port}{path}", body)) as answer:
                return answer.status, json.loads(answer.read())
        except HTTPError as refused:
            with refused:
                return refused.code, json.loads(refused.read())

    def until(self, path: str, state: str) -> Any:
        """The order, once it is so far."""
        deadline, found = time.monotonic() + SECONDS, None
        while time.monotonic() < deadline:
            try:
                _, found = self.ask(path)
                if found["state"] == state:
                    return found
            except OSError:
                found = None  # the server is about to listen
            threading.Event().wait(0.05)
        pytest.fail(f"{path} is not {state!r} but {found}")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A shop with tables, and nothing in them."""
    if request.param == "sqlite":
        shop = Shop(str(tmp_path / "shop.db"))
        shop.manage("migrate", "--verbosity", "0")
        yield shop
        return
    name = f"shop_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    with psycopg.connect(direct(), autocommit=True) as server:
        server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())
        server.execute(f'CREATE DATABASE "{name}"'.encode())
    shop = Shop(f"{direct().rpartition('/')[0]}/{name}")
    shop.manage("migrate", "--verbosity", "0")
    yield shop


@pytest.mark.proves("I9", "I12", "I16", "I25")
def test_orders_over_http(shop: Shop) -> None:
    """What is placed is shipped once, though the worker is killed with the booking half done; what is
    refused was never there; a large one waits for approval."""
    with shop.process("runserver", "--noreload", str(shop.port)):
        wait_for_server(shop)
        assert shop.ask("/orders", {"item": "pen", "amount": 3}) == (201, {"id": 1})
        assert shop.ask("/orders", {"item": "yacht", "amount": 90_000})[0] == 422
        with shop.process("outlast", "worker", SHOP_DIE="booking") as doomed:
            assert doomed.wait(SECONDS) == -signal.SIGKILL
        assert shop.ask("/orders/1")[1] == {"state": "placed", "stock": 10}
        with shop.process("outlast", "worker"):
            assert shop.until("/orders/1", "shipped")["stock"] == 9
            status, large = shop.ask("/orders", {"item": "desk", "amount": 400})
            assert status == 201
            shop.until(f"/orders/{large['id']}", "waits for approval")
            assert shop.ask(f"/orders/{large['id']}/approve", {"approved": True})[0] == 202
            shop.until(f"/orders/{large['id']}", "shipped")
    listed = [json.loads(line) for line in shop.manage("outlast", "ls").splitlines()]
    assert {run["id"] for run in listed} == {"order-1", f"order-{large['id']}"}
    assert {run["status"] for run in listed} == {"completed"}


def wait_for_server(shop: Shop) -> None:
    """Until it answers."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", shop.port), timeout=1):
                return
        except OSError:
            threading.Event().wait(0.05)
    pytest.fail("the server does not answer")
