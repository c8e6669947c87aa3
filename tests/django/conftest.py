"""Django for a test process: set up once, with a file and, if there is a server, a database of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import django
import pytest

FOLDER = tempfile.TemporaryDirectory(prefix="outlast-django-")
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django.settings"
os.environ["DJANGO_TEST_FILE"] = str(Path(FOLDER.name) / "django.db")
django.setup()

from tests.django.places import DATABASES, made, use, wipe  # noqa: E402 - Django comes first


@pytest.fixture(params=DATABASES)
def alias(request: pytest.FixtureRequest) -> Iterator[str]:
    """The database that is outlast's in this test: with all tables, and empty."""
    alias = made(request.param)
    with use(alias):
        wipe(alias)
        yield alias
