"""The Django app: ``INSTALLED_APPS = [..., "outlast.contrib.django"]``."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.backends.signals import connection_created


class OutlastConfig(AppConfig):
    """Tables, read model, admin and commands of outlast."""

    name = "outlast.contrib.django"
    label = "outlast"
    verbose_name = "outlast"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and the WAL settings of new SQLite connections."""
        from outlast.contrib.django.checks import check_database, check_settings

        connection_created.connect(_manage_wal, dispatch_uid="outlast")
        checks.register(check_settings, checks.Tags.compatibility)
        checks.register(check_database, checks.Tags.database)


def _manage_wal(*, connection: Any, **_: Any) -> None:
    """Checkpoint the WAL of a SQLite file as the store does (docs/explanation/sqlite.md): with most versions of SQLite, a
    connection that checkpoints automatically after a commit can lose the commit of another connection."""
    from outlast.contrib.django.conf import read_settings

    if connection.vendor != "sqlite" or connection.alias != read_settings().database:
        return
    if not connection.is_in_memory_db():
        from outlast.contrib.django.store import manage_wal

        manage_wal(connection)
