"""What to find, and a page of what was found.

All stores list runs in one order: newest first, ties broken by id. A page ends with a cursor that
names the last run seen, so that going on is a seek, not a skip, and nothing is shown twice or left
out when runs come and go in between.
"""

from __future__ import annotations

import base64
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from outlast.errors import InvalidValue
from outlast.model.run import Attribute, Run, Status
from outlast.model.times import to_micros

T = TypeVar("T")
MAX_LIMIT = 10_000


class RunQuery(Struct, frozen=True, kw_only=True):
    """Which runs. Filters combine and are applied before `limit`."""

    workflow: str | None = None
    status: frozenset[Status] = frozenset()
    parent: str | None = None
    attributes: dict[str, Attribute] = {}
    limit: int = 100
    after: str | None = None

    def matches(self, run: Run) -> bool:
        """Whether `run` passes the filters: their meaning, for stores that filter in Python."""
        return (
            (self.workflow is None or run.workflow == self.workflow)
            and (not self.status or run.status in self.status)
            and (self.parent is None or run.parent == self.parent)
            and all(
                _same(run.attributes.get(name), value) for name, value in self.attributes.items()
            )
        )

    def check(self) -> None:
        """Raise `InvalidValue` for a limit or a cursor that no store could honour."""
        check_limit(self.limit)
        if self.after is not None:
            parse_cursor(self.after)


class Page(Struct, Generic[T], frozen=True):
    """Some of what was found, and the cursor for the rest (None: that was all)."""

    items: list[T]
    next: str | None = None


def check_limit(limit: int) -> int:
    """Refuse a limit that is not between 1 and 10,000."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidValue(f"limit {limit} is out of range: use 1 to {MAX_LIMIT} and the cursor")
    return limit


def cursor_of(run: Run) -> str:
    """The cursor that goes on after `run`."""
    position = msgspec.json.encode([to_micros(run.created_at), run.id])
    return base64.urlsafe_b64encode(position).decode().rstrip("=")


def parse_cursor(cursor: str) -> tuple[int, str]:
    """The creation time in microseconds and the id that a cursor names."""
    try:
        position = base64.b64decode(
            cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        )
        return msgspec.json.decode(position, type=tuple[int, str])
    except (ValueError, UnicodeError) as error:
        raise InvalidValue(
            f"{cursor[:40]!r} is not a cursor: pass on the one that the last page gave you"
        ) from error


def _same(left: object, right: object) -> bool:
    # True == 1 in Python; in a filter they are different values.
    return type(left) is type(right) and left == right
