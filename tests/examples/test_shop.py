"""The shop, over HTTP: a server of its own, killed in the middle, and started again."""

from __future__ import annotations

import asyncio
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

import httpx
import pytest
from sqlalchemy import make_url

from tests.stores.postgres.places import SCHEMA, ask, direct

ROOT = Path(__file__).parents[2]


@contextmanager
def shop(url: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """The server, and a client of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "--factory", "examples.shop.api:make_app",
         "--port", str(port), "--log-level", "warning"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            until(lambda: answers(client, process))
            yield client, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def answers(client: httpx.Client, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the server has ended"
    try:
        return client.get("/orders/nobody").status_code == 404
    except httpx.TransportError:
        return False


def until(condition: Any) -> None:
    """Ask again and again, over HTTP, as any client of it would."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


@pytest.fixture
def url(database: str, tmp_path: Path) -> Iterator[str]:
    """A database that is empty."""
    if database == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}"
        return
    name = f"shop_{SCHEMA}"
    asyncio.run(ask(f"DROP DATABASE IF EXISTS {name}"))
    asyncio.run(ask(f"CREATE DATABASE {name}"))
    yield make_url(direct()).set(drivername=database, database=name).render_as_string(False)
    asyncio.run(ask(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql+asyncpg", marks=pytest.mark.server)]
)
@pytest.mark.proves("I9", "I12", "C-27")
def test_an_order_survives_its_server(url: str) -> None:
    """Placed and reserved by one server, which is killed; paid and shipped by the next. The book is
    taken from the shelf once, and an order that is refused has no run."""
    with shop(url) as (client, process):
        assert client.put("/books/Momo", params={"number": 1}).json()["stock"] == 1
        assert client.post("/orders/o-1", params={"title": "Momo"}).status_code == 201
        assert client.post("/orders/o-1", params={"title": "Momo"}).status_code == 409
        until(lambda: client.get("/orders/o-1").json()["done"] == ["reserve"])
        assert client.get("/orders/o-1").json()["state"] == "reserved"
        assert client.post("/orders/o-2/payment", params={"by": "card"}).status_code == 409
        process.kill()
        process.wait()
    with shop(url) as (client, _):
        assert client.post("/orders/o-1/payment", params={"by": "card"}).status_code == 202
        until(lambda: client.get("/orders/o-1").json()["run"] == "completed")
        shown = client.get("/orders/o-1").json()
        assert shown["state"] == "shipped, paid by card"
        assert shown["done"] == ["reserve", "signal:payment", "ship"]
        assert client.post("/orders/o-2", params={"title": "Momo"}).status_code == 201
        until(lambda: client.get("/orders/o-2").json()["run"] == "completed")
        assert client.get("/orders/o-2").json()["state"] == "sold out"
