"""The read model: runs and their histories as ordinary querysets.

``Run.objects.filter(workflow="checkout", status="failed")``, ``run.events.filter(type="step.failed")``.
The rows belong to outlast and are changed through `outlast.contrib.django.runs`, so saving and deleting
are refused here. Names and meanings of the fields are documented in docs/reference/django.md and stay the
same when the tables change.

The fields convert stored values: times in microseconds, and encoded payloads. They do not change the
columns, so that a filter uses the index of the column: a time is compared as an integer, and is a
`datetime` on both sides of the queryset.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import msgspec
from django.conf import settings
from django.db import models
from django.utils import timezone

from outlast.codecs import JsonCodec
from outlast.contrib.django.conf import read_settings
from outlast.errors import Undecodable, WorkflowMisuse
from outlast.model.run import Status
from outlast.model.times import from_micros, to_micros


class MomentField(models.BigIntegerField):
    """A time, stored as microseconds since 1970. It supports exact, lt, lte, gt, gte, range, in and isnull;
    lookups of parts of a date are not supported."""

    description = "A moment, exact to the microsecond"

    def from_db_value(self, value: int | None, _: Any, __: Any) -> datetime | None:
        """A `datetime` in UTC; naive in local time if USE_TZ is False."""
        if value is None:
            return None
        moment = from_micros(value)
        return moment if settings.USE_TZ else timezone.make_naive(moment)

    def to_python(self, value: Any) -> Any:
        """The value as it is."""
        return value if isinstance(value, datetime) else super().to_python(value)

    def get_prep_value(self, value: Any) -> int | None:
        """The integer to compare with the column."""
        if isinstance(value, timedelta):
            raise TypeError("a time is compared with a datetime, not with a timedelta")
        if isinstance(value, datetime):
            aware = value if timezone.is_aware(value) else timezone.make_aware(value)
            return to_micros(aware.astimezone(UTC))
        return super().get_prep_value(value)  # type: ignore[no-any-return]


class StoredText(models.TextField):
    """Text. PostgreSQL cannot store NUL, which is stored as U+001A '0'."""

    def from_db_value(self, value: str | None, _: Any, connection: Any) -> str | None:
        """The text that was stored."""
        if value is None or connection.vendor != "postgresql" or "\x1a" not in value:
            return value
        return value.replace("\x1a0", "\x00").replace("\x1a1", "\x1a")


class PayloadField(models.BinaryField):
    """A payload, decoded by the codec of the settings."""

    description = "A value, encoded by outlast's codec"

    def from_db_value(self, value: Any, _: Any, __: Any) -> Any:
        """The value; raises `Undecodable` if it is damaged."""
        if value is None:
            return None
        return read_settings().codec.decode(bytes(value), where=self.attname)


class PublishedField(models.BinaryField):
    """The values that a run has published, by name."""

    def from_db_value(self, value: Any, _: Any, __: Any) -> dict[str, Any]:
        """The values by name."""
        if value is None:
            return {}
        try:
            found = msgspec.msgpack.decode(bytes(value), type=dict[str, bytes])
        except msgspec.DecodeError as error:
            raise Undecodable(f"the published values of a run are damaged: {error}") from error
        codec = read_settings().codec
        return {name: codec.decode(data, where=name) for name, data in found.items()}


class PlainJsonField(models.TextField):
    """JSON that outlast writes without a codec: attributes and metadata."""

    def from_db_value(self, value: Any, _: Any, __: Any) -> dict[str, Any]:
        """A dict; empty if nothing is stored."""
        if value is None:
            return {}
        text = bytes(value) if not isinstance(value, str) else value.encode()
        found: dict[str, Any] = JsonCodec().decode(text, dict[str, Any], where=self.attname)
        return found


STATUSES = [(status.value, status.value) for status in Status]


class ReadOnlyQuerySet(models.QuerySet[Any]):
    """A queryset that refuses writes."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise WorkflowMisuse(
            "rows of outlast are read-only here: change runs with outlast.contrib.django.runs "
            "(start, signal, cancel, retry, delete)"
        )

    create = get_or_create = update_or_create = bulk_create = bulk_update = _refuse
    update = delete = acreate = aupdate = adelete = _refuse


class ReadOnlyManager(models.Manager.from_queryset(ReadOnlyQuerySet)):  # type: ignore[misc]
    """Reads the database of the settings, whatever a router says, because a replica may lag. To read a
    replica: ``Run.objects.using("replica")``."""

    def get_queryset(self) -> Any:
        """All rows."""
        return super().get_queryset().using(self._db or read_settings().database)


class ReadOnlyModel(models.Model):
    """A row that outlast writes."""

    objects = ReadOnlyManager()

    class Meta:
        """No table."""

        abstract = True

    def save(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise WorkflowMisuse(
            "a row of outlast cannot be saved: change runs with outlast.contrib.django.runs"
        )

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise WorkflowMisuse(
            "use outlast.contrib.django.runs.get(run.id).delete(), or `outlast rm`"
        )


class Run(ReadOnlyModel):
    """One execution of a workflow."""

    id = models.TextField(primary_key=True)
    key = models.BigIntegerField(unique=True, editable=False)
    uid = StoredText()
    workflow = StoredText()
    parent = models.TextField(null=True)
    status = models.TextField(choices=STATUSES)
    wait_kind = StoredText(null=True)
    current_step = StoredText(null=True)
    queue = StoredText()
    priority = models.BigIntegerField()
    owner = models.TextField(null=True)
    sequence = models.BigIntegerField()
    attributes = PlainJsonField()
    error = StoredText(null=True)
    recover_to = StoredText(null=True)
    created_at = MomentField()
    updated_at = MomentField()
    ended_at = MomentField(null=True)
    runnable_at = MomentField(null=True)
    claimed_until = MomentField(null=True)
    input = PayloadField(null=True)
    result = PayloadField(null=True)
    halt_data = PayloadField(null=True)
    ctx = PublishedField()

    class Meta:
        """A view that the migration creates."""

        managed = False
        base_manager_name = "objects"
        db_table = "outlast_django_runs"
        default_permissions = ("view", "change")
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return f"{self.workflow} {self.id}"

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return Status(self.status).terminal


class Event(ReadOnlyModel):
    """A recorded fact in the history of a run: `sequence` is 1, 2, 3 … without gaps."""

    pk = models.CompositePrimaryKey("run_id", "sequence")
    run = models.ForeignKey(
        Run,
        models.DO_NOTHING,
        to_field="key",
        db_column="run_key",
        db_constraint=False,
        related_name="events",
    )
    sequence = models.BigIntegerField()
    event_id = StoredText(db_column="id")
    type = StoredText()
    step_name = StoredText()
    timestamp = MomentField()
    token = models.BigIntegerField()
    metadata = PlainJsonField(null=True)
    data = PayloadField()
    output = PayloadField(null=True)

    class Meta:
        """A table of the store."""

        managed = False
        base_manager_name = "objects"
        db_table = "outlast_events"
        default_permissions = ("view",)
        ordering = ("run", "sequence")

    def __str__(self) -> str:
        return f"{self.sequence} {self.type} {self.step_name}".rstrip()
