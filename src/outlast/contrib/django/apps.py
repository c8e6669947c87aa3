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
        """Tell Django what to check at the start."""
        from outlast.contrib.django.checks import check_database, check_settings

        connection_created.connect(_leave_the_log, dispatch_uid="outlast")
        checks.register(check_settings, checks.Tags.compatibility)
        checks.register(check_database, checks.Tags.database)


def _leave_the_log(*, connection: Any, **_: Any) -> None:
    """Checkpoint the log of a SQLite file as the store does (docs/explanation/sqlite.md): a connection that checkpoints
    a little after each commit can, with most versions of SQLite, lose the commit of another."""
    from outlast.contrib.django.conf import read_settings

    if connection.vendor != "sqlite" or connection.alias != read_settings().database:
        return
    if not connection.is_in_memory_db():
        from outlast.contrib.django.worker import keep

        keep(connection)
