"""The tables of outlast, and the read model over them."""

from __future__ import annotations

from django.db import migrations, models

from outlast.contrib.django.models import (
    MomentField,
    PayloadField,
    PlainJsonField,
    PublishedField,
    StoredText,
)
from outlast.contrib.django.tables import MakeTables

STATUSES = "pending running waiting halted paused completed failed cancelled"


class Migration(migrations.Migration):
    """Runs outlast's own SQL files."""

    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        MakeTables(postgresql=1, sqlite=1),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("key", models.BigIntegerField(editable=False, unique=True)),
                ("uid", StoredText()),
                ("workflow", StoredText()),
                ("parent", models.TextField(null=True)),
                ("status", models.TextField(choices=[(name, name) for name in STATUSES.split()])),
                ("wait_kind", StoredText(null=True)),
                ("current_step", StoredText(null=True)),
                ("queue", StoredText()),
                ("priority", models.BigIntegerField()),
                ("owner", models.TextField(null=True)),
                ("sequence", models.BigIntegerField()),
                ("attributes", PlainJsonField()),
                ("error", StoredText(null=True)),
                ("recover_to", StoredText(null=True)),
                ("created_at", MomentField()),
                ("updated_at", MomentField()),
                ("ended_at", MomentField(null=True)),
                ("runnable_at", MomentField(null=True)),
                ("claimed_until", MomentField(null=True)),
                ("input", PayloadField(null=True)),
                ("result", PayloadField(null=True)),
                ("halt_data", PayloadField(null=True)),
                ("ctx", PublishedField()),
            ],
            options={
                "db_table": "outlast_django_runs",
                "ordering": ("-created_at", "-id"),
                "managed": False,
                "default_permissions": ("view", "change"),
                "base_manager_name": "objects",
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("pk", models.CompositePrimaryKey("run_id", "sequence")),
                (
                    "run",
                    models.ForeignKey(
                        "outlast.Run",
                        models.DO_NOTHING,
                        to_field="key",
                        db_column="run_key",
                        db_constraint=False,
                        related_name="events",
                    ),
                ),
                ("sequence", models.BigIntegerField()),
                ("event_id", StoredText(db_column="id")),
                ("type", StoredText()),
                ("step_name", StoredText()),
                ("timestamp", MomentField()),
                ("token", models.BigIntegerField()),
                ("metadata", PlainJsonField(null=True)),
                ("data", PayloadField()),
                ("output", PayloadField(null=True)),
            ],
            options={
                "db_table": "outlast_events",
                "ordering": ("run", "sequence"),
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
    ]
