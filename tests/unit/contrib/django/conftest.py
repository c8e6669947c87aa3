"""Django for a test process: set up once, with a file and, if there is a server, a database of its own."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest

FOLDER = tempfile.TemporaryDirectory(prefix="outlast-django-")
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.unit.contrib.django.settings"
os.environ["DJANGO_TEST_FILE"] = str(Path(FOLDER.name) / "django.db")
django.setup()

from django.db import connections  # noqa: E402 - Django comes first
from django.db.backends.signals import connection_created  # noqa: E402 - Django comes first

from tests.unit.contrib.django.places import DATABASES, made, use, wipe  # noqa: E402 - Django comes first


@pytest.fixture(autouse=True)
def no_connection_left_open() -> Iterator[None]:
    """A connection ends before its thread: the garbage collector closes it late, and from Python 3.13 on
    with a warning in whatever test comes next."""
    opened: list[tuple[threading.Thread, Any]] = []

    def note(*, connection: Any, **_: Any) -> None:
        opened.append((threading.current_thread(), connection))

    connection_created.connect(note)
    yield
    connection_created.disconnect(note)
    here = connections.all(initialized_only=True)
    left = []
    for thread, own in opened:
        # One of this thread stays for the next test, if this thread can still find it.
        is_kept = own in here if thread is threading.current_thread() else thread.is_alive()
        if own.connection is not None and not is_kept:
            left.append(f"{own.alias}, opened in {thread.name}")
    assert left == []


@pytest.fixture(params=DATABASES)
def alias(request: pytest.FixtureRequest) -> Iterator[str]:
    """The database that is outlast's in this test: with all tables, and empty."""
    alias = made(request.param)
    with use(alias):
        wipe(alias)
        yield alias
