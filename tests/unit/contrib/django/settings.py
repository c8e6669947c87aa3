"""Settings of the tests' own project: one database on SQLite, one on PostgreSQL; each test says which of
them is outlast's."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

SECRET_KEY = "of the tests"
USE_TZ = True
ROOT_URLCONF = "tests.unit.contrib.django.urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "outlast.contrib.django",
    "tests.unit.contrib.django.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


def on_sqlite(file: str) -> dict[str, object]:
    """An entry of DATABASES for a file."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": file,
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }


def on_postgres(url: str, name: str) -> dict[str, object]:
    """An entry of DATABASES for a database of a server."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }


WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
# Tests put it into a folder of their own before anybody connects.
DATABASES = {"default": on_sqlite(os.environ.get("DJANGO_TEST_FILE", "not-there/django.db"))}
if server := os.environ.get("OUTLAST_TEST_POSTGRES"):
    DATABASES["postgres"] = on_postgres(server, f"django_{WORKER}")
OUTLAST = {"DATABASE": os.environ.get("DJANGO_TEST_DATABASE", "default")}
