"""Restate's server and the handler that it calls, for as long as somebody needs them."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench._peers import PeerMissing, environment_for, restate_server, theirs
from tools.serving.system import Process, ServerMissing, free_port, listens

HOST = "127.0.0.1"
SETTINGS = {
    "RESTATE_LISTEN_MODE": "tcp",
    "RESTATE_BIND_IP": HOST,
    "RESTATE_DISABLE_TELEMETRY": "true",
    "RESTATE_LOG_FILTER": "error",
}
"""Of the server; all else is as it comes."""

PORTS = ("RESTATE_BIND_PORT", "RESTATE_INGRESS__BIND_PORT", "RESTATE_ADMIN__BIND_PORT")


class Restate(NamedTuple):
    """A server that knows the handler at a port."""

    ingress: str
    handler_port: int


@contextmanager
def restate(folder: Path, ledger: Path | None = None) -> Iterator[tuple[Restate, Process]]:
    """A server with its own settings, new and empty, and a handler: `kill` that one if you like."""
    node, ingress, admin, port = (free_port() for _ in range(4))
    home = folder / f"restate-{node}"
    home.mkdir()
    ports = map(str, (node, ingress, admin))
    settings = {**SETTINGS, **dict(zip(PORTS, ports, strict=True))}
    server = str(restate_server())
    processes: list[Process] = []
    try:
        handler = start_handler(home, port, ledger)
        processes.append(handler)
        with _variables(settings):
            command = [server, "--no-logo", "--base-dir", str(home / "data")]
            processes.append(Process(command, home, name="server"))
        processes[-1].wait_until(lambda: _answers(f"http://{HOST}:{admin}/health"))
        _register(f"http://{HOST}:{admin}/deployments", f"http://{HOST}:{port}")
        processes[-1].wait_until(lambda: listens(ingress))
        yield Restate(f"{HOST}:{ingress}", port), handler
    except ServerMissing as missing:
        raise PeerMissing(str(missing).strip().splitlines()[-1]) from missing
    finally:
        for process in reversed(processes):
            process.kill()  # nothing is kept, and their own way of ending takes its time
        shutil.rmtree(home, ignore_errors=True)


def start_handler(folder: Path, port: int, ledger: Path | None = None) -> Process:
    """Start a handler, and wait until it listens."""
    extra = [str(ledger)] if ledger is not None else []
    command = theirs("restate", "restate_handler", str(port), *extra)
    with _variables(environment_for(command[0])):
        handler = Process(command, folder, name=f"handler-{os.urandom(4).hex()}")
    handler.wait_until(lambda: listens(port))
    return handler


def _answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def _register(url: str, handler: str) -> None:
    body = json.dumps({"uri": handler}).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30):
            pass
    except OSError as error:
        raise PeerMissing(f"Restate did not take the handler: {error}") from error


@contextmanager
def _variables(values: dict[str, str]) -> Iterator[None]:
    """Variables that a process is started with."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
