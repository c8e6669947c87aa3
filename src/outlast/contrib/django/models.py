"""Fields that read what outlast has stored: times in microseconds, payloads to the byte.

They keep the columns as they are, so that a filter is answered by the index of the column: a time
compares as an integer, and is a `datetime` on both sides of the queryset.

The read model: runs and their histories as ordinary querysets.

``Run.objects.filter(workflow="checkout", status="failed")``, ``run.events.filter(type="step.failed")``.
The rows are outlast's own; what is written goes through `outlast.contrib.django.runs`, so saving
and deleting are refused here. Names and meanings of the fields are those of docs/reference/django.md
and stay, whatever becomes of the tables below.
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
    """A time, kept as whole microseconds since 1970. Lookups are those of a number that hold for a
    time (exact, lt, gte, range, in, isnull); parts of a date are not columns here."""

    description = "A moment, exact to the microsecond"

    def from_db_value(self, value: int | None, _: Any, __: Any) -> datetime | None:
        """A `datetime`, in UTC; naive in local time where the project has USE_TZ = False."""
        if value is None:
            return None
        moment = from_micros(value)
        return moment if settings.USE_TZ else timezone.make_naive(moment)

    def to_python(self, value: Any) -> Any:
        """A `datetime` as it is."""
        return value if isinstance(value, datetime) else super().to_python(value)

    def get_prep_value(self, value: Any) -> int | None:
        """What is compared with the column."""
        if isinstance(value, timedelta):
            raise TypeError("a moment is compared with a datetime, not with a timedelta")
        if isinstance(value, datetime):
            aware = value if timezone.is_aware(value) else timezone.make_aware(value)
            return to_micros(aware.astimezone(UTC))
        return super().get_prep_value(value)  # type: ignore[no-any-return]


class StoredText(models.TextField):
    """Text. PostgreSQL cannot hold a NUL, which stands there as U+001A '0'."""

    def from_db_value(self, value: str | None, _: Any, connection: Any) -> str | None:
        """The text that was stored."""
        if value is None or connection.vendor != "postgresql" or "\x1a" not in value:
            return value
        return value.replace("\x1a0", "\x00").replace("\x1a1", "\x1a")


class PayloadField(models.BinaryField):
    """A value that a workflow was given or has returned, decoded by the codec of the settings."""

    description = "A value, encoded by outlast's codec"

    def from_db_value(self, value: Any, _: Any, __: Any) -> Any:
        """The value; `Undecodable` if its bytes are damaged."""
        if value is None:
            return None
        return read_settings().codec.decode(bytes(value), where=self.attname)


class PublishedField(models.BinaryField):
    """What a run has published: a dict of values."""

    def from_db_value(self, value: Any, _: Any, __: Any) -> dict[str, Any]:
        """The values by name."""
        if value is None:
            return {}
        try:
            found = msgspec.msgpack.decode(bytes(value), type=dict[str, bytes])
        except msgspec.DecodeError as error:
            raise Undecodable(f"what a run has published is damaged: {error}") from error
        codec = read_settings().codec
        return {name: codec.decode(data, where=name) for name, data in found.items()}


class PlainJsonField(models.TextField):
    """JSON of outlast's own, which no codec has touched: attributes and metadata."""

    def from_db_value(self, value: Any, _: Any, __: Any) -> dict[str, Any]:
        """A dict; empty where nothing is stored."""
        if value is None:
            return {}
        text = bytes(value) if not isinstance(value, str) else value.encode()
        found: dict[str, Any] = JsonCodec().decode(text, dict[str, Any], where=self.attname)
        return found


STATUSES = [(status.value, status.value) for status in Status]


class ReadOnlyQuerySet(models.QuerySet[Any]):
    """Reads only."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise WorkflowMisuse(
            "rows of outlast are read only here: act on runs by outlast.contrib.django.runs "
            "(start, signal, cancel, retry, delete)"
        )

    create = get_or_create = update_or_create = bulk_create = bulk_update = _refuse
    update = delete = acreate = aupdate = adelete = _refuse


class ReadOnlyManager(models.Manager.from_queryset(ReadOnlyQuerySet)):  # type: ignore[misc]
    """Reads the database of the settings, whatever a router says: a replica may be behind. Who wants
    it asks for it: ``Run.objects.using("replica")``."""

    def get_queryset(self) -> Any:
        """All rows."""
        return super().get_queryset().using(self._db or read_settings().database)


class ReadOnlyModel(models.Model):
    """A row that outlast has written."""

    objects = ReadOnlyManager()

    class Meta:
        """Nothing of its own."""

        abstract = True

    def save(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise WorkflowMisuse(
            "a row of outlast cannot be saved: act on runs by outlast.contrib.django.runs"
        )

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise WorkflowMisuse("use outlast.contrib.django.runs.delete(run.id), or `outlast rm`")


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
        """A view that the migration makes."""

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
