"""The read model: runs and their histories as ordinary querysets.

``Run.objects.filter(workflow="checkout", status="failed")``, ``run.events.filter(type="step.failed")``.
The rows are outlast's own; what is written goes through `outlast.contrib.django.runs`, so saving
and deleting are refused here. Names and meanings of the fields are those of docs/reference/django.md
and stay, whatever becomes of the tables below.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models

from outlast.contrib.django.conf import read_settings
from outlast.contrib.django.fields import (
    MomentField,
    PayloadField,
    PlainJsonField,
    PublishedField,
    StoredText,
)
from outlast.errors import WorkflowMisuse
from outlast.model.run import Status

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
