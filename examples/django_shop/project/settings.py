"""A small project: orders in a SQLite file, or in the PostgreSQL database that SHOP_DATABASE names."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = os.environ.get("SHOP_SECRET", "only for the example")
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "project.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "outlast.contrib.django",
    "orders",
]


def database(place: str) -> dict[str, object]:
    if not place.startswith("postgresql:"):
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": place,
            # Whoever begins a transaction may write in it: nobody has to begin again.
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        }
    url = urlsplit(place)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path.lstrip("/"),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": url.hostname or "",
        "PORT": str(url.port or ""),
    }


DATABASES = {"default": database(os.environ.get("SHOP_DATABASE", str(BASE_DIR / "shop.db")))}

# All of it may be left out; a lease this short is for watching a worker die.
OUTLAST = {"DATABASE": "default", "LEASE": 3.0}
