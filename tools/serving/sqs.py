"""SQS: moto's server, with time that a test can move for itself.

A request may carry the header `X-Outlast-Ahead`: seconds by which the server's clock is ahead for this
request alone. So each test moves its own time, whoever else uses the server.

moto answers in several threads and its queues are not made for that, so one request is served at a
time; a long poll lets go of the server while it waits.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tools.serving.system import Process, free_port, listens

ROOT = Path(__file__).resolve().parent.parent.parent
AHEAD = "X-Outlast-Ahead"

_changed = threading.Condition()
_request = threading.local()


def start_sqs(folder: Path) -> dict[str, str]:
    """A server of SQS alone."""
    url, _ = start_own(folder)
    return {"OUTLAST_TEST_SQS": url}


def start_own(folder: Path) -> tuple[str, Process]:
    """A server for a test that mistreats it: its endpoint, and the process to be stopped."""
    port = free_port()
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {__name__} as s; s.serve({port})"
    server = Process([sys.executable, "-c", code], folder, name="sqs")
    server.wait_until(lambda: listens(port))
    return f"http://127.0.0.1:{port}", server


def serve(port: int) -> None:
    """Serve until the process is ended."""
    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    sqs: Any = importlib.import_module("moto.sqs.models")

    class Quiet(WSGIRequestHandler):
        """Keeps connections, and says nothing about each request."""

        protocol_version = "HTTP/1.1"

        def log_request(self, *_: Any) -> None:
            """Not for tests."""

    # The whole module tells the time by these two.
    sqs.unix_time = lambda: time.time() + _ahead()
    sqs.unix_time_millis = lambda: 1000 * (time.time() + _ahead())
    sqs.SQSBackend.receive_message = _waiting(sqs.SQSBackend.receive_message)
    app = _one_at_a_time(create_backend_app("sqs"))
    make_server("127.0.0.1", port, app, threaded=True, request_handler=Quiet).serve_forever()


def _ahead() -> float:
    seconds: float = getattr(_request, "ahead", 0.0)
    return seconds


def _one_at_a_time(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    def serve_one(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with _changed:
            _request.ahead = float(environ.get("HTTP_" + AHEAD.upper().replace("-", "_"), 0))
            answer = list(app(environ, start_response))
            _changed.notify_all()
        return answer

    return serve_one


def _waiting(receive: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def receive_or_wait(
        self: Any, queue: str, count: int, wait: int, visibility: int, names: Any = None
    ) -> list[Any]:
        deadline = time.monotonic() + wait
        while True:
            found = receive(self, queue, count, 0, visibility, names)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            _changed.wait(min(left, 1.0))  # a message may also come because its time has come

    return receive_or_wait
