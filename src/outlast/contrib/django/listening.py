"""How a worker on PostgreSQL hears of work: a thread with a connection of Django's that listens.

It is a wake-up channel: what it misses is found by looking. Behind a pooler nobody can listen.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading

from django.db import DatabaseError, connections

from outlast.ports.notifier import from_message
from outlast.stores.postgres.notifier import PostgresNotifier

_logger = logging.getLogger("outlast.django")

GATHER = 0.01
"""Seconds for which the driver takes in what has come, once something has."""

LOOK_AGAIN = 5.0
"""Seconds after which it is asked in any case: the driver may have read more than it has told."""

RETRY = 2.0


class Listening:
    """Wakes those who wait on a notifier, between `start` and `stop`. Stopping twice is fine."""

    def __init__(self, alias: str, notifier: PostgresNotifier) -> None:
        self._alias = alias
        self._notifier = notifier
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._ears: tuple[socket.socket, socket.socket] | None = None

    def start(self) -> None:
        """Begin; a thread that runs goes on."""
        if self._thread is None:
            self._stopping.clear()
            self._ears = socket.socketpair()
            self._thread = threading.Thread(
                target=self._run, args=(self._ears[1],), name="outlast-listens", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for that. Blocks: not to be called in a loop."""
        thread, self._thread = self._thread, None
        ears, self._ears = self._ears, None
        self._stopping.set()
        if thread is not None and ears is not None:
            ears[0].send(b"!")
            thread.join()
            for ear in ears:
                ear.close()

    def _run(self, stopped: socket.socket) -> None:
        import psycopg

        while not self._stopping.is_set():
            try:
                self._listen(stopped)
            except (DatabaseError, psycopg.Error) as error:
                _logger.debug("cannot listen: %s", error)
                self._stopping.wait(RETRY)
            finally:
                self._notifier.is_listening = False
                connections[self._alias].close()

    def _listen(self, stopped: socket.socket) -> None:
        own = connections[self._alias]
        own.ensure_connection()
        own.connection.execute(f'LISTEN "{self._notifier.channel}"'.encode())
        self._notifier.is_listening = True
        self._notifier.wake_local()  # for all that came while nobody listened
        with selectors.DefaultSelector() as selector:
            selector.register(stopped, selectors.EVENT_READ)
            selector.register(own.connection.fileno(), selectors.EVENT_READ)
            while not self._stopping.is_set():
                for heard in own.connection.notifies(timeout=GATHER):
                    sender, kind, runs = from_message(heard.payload)
                    if sender != self._notifier.name:
                        self._notifier.wake_local(kind, runs=runs)
                selector.select(LOOK_AGAIN)
