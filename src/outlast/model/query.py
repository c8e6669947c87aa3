"""RunQuery: a search for runs. Page: a part of its results. Projection: tables for other people's SQL.

All stores list runs in the same orders: newest first by default, ties broken by id. A page ends with a
cursor that names its last run, so that the next page is an index seek. Runs that are created or deleted
in between do not make a run appear twice or be skipped. In the orders by last change, a run that changes
during the listing may appear again or be skipped.

The projection has a run and its audit lines as two plain tables that other programs can read and join.
Database triggers write it in the transaction of each commit. The store's own tables remain the truth.
"""

from __future__ import annotations

import base64
import re
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from outlast.errors import InvalidValue
from outlast.model.run import Attribute, Run, Status
from outlast.model.times import to_micros

T = TypeVar("T")
MAX_LIMIT = 10_000


class Order(StrEnum):
    """The order of a listing. Ties are broken by id, in the same direction."""

    NEWEST = "-created"
    OLDEST = "created"
    LATEST = "-updated"
    STALEST = "updated"

    @property
    def ascending(self) -> bool:
        """Whether the smallest time comes first."""
        return not self.value.startswith("-")

    @property
    def by_change(self) -> bool:
        """Whether runs are ordered by the time of their last change, not of their creation."""
        return self in (Order.LATEST, Order.STALEST)

    def moment(self, run: Run) -> datetime:
        """The time of a run that decides its position."""
        return run.updated_at if self.by_change else run.created_at

    def position(self, run: Run) -> tuple[int, str]:
        """The position of a run: time in microseconds, and id."""
        return to_micros(self.moment(run)), run.id

    def is_past(self, position: tuple[int, str], other: tuple[int, str]) -> bool:
        """Whether a position comes after another one."""
        return position > other if self.ascending else position < other


class RunQuery(Struct, frozen=True, kw_only=True):
    """A search for runs. Filters combine and are applied before `limit`."""

    workflow: str | None = None
    status: frozenset[Status] = frozenset()
    parent: str | None = None
    attributes: dict[str, Attribute] = {}
    order: Order = Order.NEWEST
    limit: int = 100
    after: str | None = None

    def matches(self, run: Run) -> bool:
        """Whether `run` passes the filters."""
        return (
            (self.workflow is None or run.workflow == self.workflow)
            and (not self.status or run.status in self.status)
            and (self.parent is None or run.parent == self.parent)
            and all(
                _same(run.attributes.get(name), value) for name, value in self.attributes.items()
            )
        )

    def check(self) -> None:
        """Raise `InvalidValue` for an invalid limit or cursor."""
        check_limit(self.limit)
        if self.after is not None:
            parse_cursor(self.after, self.order)


class Page(Struct, Generic[T], frozen=True):
    """Some of the results, and the cursor of the next page (None: this is the last page)."""

    items: list[T]
    next: str | None = None


def check_limit(limit: int) -> int:
    """Raise for a limit that is not between 1 and 10,000."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidValue(f"limit {limit} is out of range: use 1 to {MAX_LIMIT} and the cursor")
    return limit


def cursor_of(run: Run, order: Order = Order.NEWEST) -> str:
    """The cursor of the page that starts after `run`."""
    return cursor_at(order.position(run), order)


def cursor_at(position: tuple[int, str], order: Order = Order.NEWEST) -> str:
    """The cursor of the page that starts after a position."""
    named = position if order is Order.NEWEST else (*position, order)
    return base64.urlsafe_b64encode(msgspec.json.encode(named)).decode().rstrip("=")


def parse_cursor(cursor: str, order: Order = Order.NEWEST) -> tuple[int, str]:
    """The time in microseconds and the id in a cursor of this order."""
    found, position = _read(cursor)
    if found is not order:
        raise InvalidValue(
            f"{cursor[:40]!r} is a cursor of the order {found.value!r}, not {order.value!r}: use the order "
            "of the page that returned it"
        )
    return position


def order_of(cursor: str) -> Order:
    """The order of the page that returned a cursor."""
    return _read(cursor)[0]


def _read(cursor: str) -> tuple[Order, tuple[int, str]]:
    try:
        if (
            "+" in cursor or "/" in cursor
        ):  # the other alphabet of Base64, which Python up to 3.14 accepts too
            raise ValueError("not a cursor")
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        named = msgspec.json.decode(text, type=list[int | str])
        moment, id, *rest = named
        order = Order(str(rest[0])) if rest else Order.NEWEST
        if len(rest) > 1 or not isinstance(moment, int) or not isinstance(id, str):
            raise ValueError("not a position")
    except (ValueError, UnicodeError) as error:
        raise InvalidValue(
            f"{cursor[:40]!r} is not a cursor: pass the `next` of the previous page"
        ) from error
    return order, (moment, id)


def _same(left: object, right: object) -> bool:
    # True == 1 in Python, but a filter distinguishes them.
    return type(left) is type(right) and left == right


EXECUTIONS, ENTRIES = "workflow_executions", "workflow_entries"

EXECUTION_COLUMNS = (
    "id", "workflow_id", "status", "input", "ctx", "current_step", "result", "recover_to",
    "halt_data", "error", "created_at", "updated_at",
)  # fmt: skip
ENTRY_COLUMNS = (
    "id", "execution_id", "step_id", "step_type", "action", "duration_ms", "input", "output",
    "error", "timestamp",
)  # fmt: skip

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class Projection(Struct, frozen=True):
    """The names of the tables and of their schema (None: the default schema of the connection)."""

    executions: str = EXECUTIONS
    entries: str = ENTRIES
    schema: str | None = None

    def check(self) -> None:
        """Raise for an invalid name of a table or schema."""
        for name in (self.executions, self.entries, self.schema):
            if name is not None and not _NAME.fullmatch(name):
                raise InvalidValue(
                    f"{name!r} is not a name of a table or schema: use up to 63 letters, digits and '_', not starting "
                    "with a digit"
                )
        if self.executions == self.entries:
            raise InvalidValue(
                f"{self.entries!r} is given for executions and for entries: use two tables"
            )

    def quoted(self, table: str) -> str:
        """The quoted SQL name of a table."""
        return f'"{table}"' if self.schema is None else f'"{self.schema}"."{table}"'


def check_columns(table: str, wanted: tuple[str, ...], found: dict[str, bool]) -> None:
    """Raise if the projection cannot write to a table. `found` has its columns, and whether each is
    required: NOT NULL without a default."""
    if not found:
        raise InvalidValue(
            f"there is no table {table!r}: run your migrations or metadata.create_all before you open a "
            "store with a projection"
        )
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InvalidValue(
            f"the table {table!r} has no column {', '.join(missing)}: use the mixins of "
            "outlast.contrib.sqlalchemy, and migrate"
        )
    required = [name for name, is_required in found.items() if is_required and name not in wanted]
    if required:
        raise InvalidValue(
            f"the column {', '.join(required)} of {table!r} is NOT NULL without a default, so the projection "
            "cannot insert rows. Allow NULL, or give it a server_default"
        )
