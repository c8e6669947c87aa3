"""Fields that read what outlast has stored: times in microseconds, payloads to the byte.

They keep the columns as they are, so that a filter is answered by the index of the column: a time
compares as an integer, and is a `datetime` on both sides of the queryset.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import models
from django.utils import timezone

from outlast.codecs import JsonCodec
from outlast.contrib.django.conf import read_settings
from outlast.errors import Undecodable
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
