"""What to find, and a page of what was found.

All stores list runs in the same orders: newest first unless asked otherwise, ties broken by id. A page
ends with a cursor that names the last run seen, so that going on is a seek, not a skip, and nothing is
shown twice or left out when runs come and go in between. Only what changes while it is listed by its
last change may be shown again, or come before the place where one is.

Projection: a run and its audit lines in the shape of the seed's two tables.

The truth is in the store's own tables, with text ids and exact bytes. The projection is for others to
read and to join: it is written by triggers in the commit that changes a run, whoever commits.
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
    """In which order. Ties are broken by id, in the same direction."""

    NEWEST = "-created"
    OLDEST = "created"
    LATEST = "-updated"
    STALEST = "updated"

    @property
    def rises(self) -> bool:
        """Whether the smallest time comes first."""
        return not self.value.startswith("-")

    @property
    def by_change(self) -> bool:
        """Whether it goes by the time of the last change, not of creation."""
        return self in (Order.LATEST, Order.STALEST)

    def moment(self, run: Run) -> datetime:
        """The time of a run that it goes by."""
        return run.updated_at if self.by_change else run.created_at

    def position(self, run: Run) -> tuple[int, str]:
        """Where a run stands."""
        return to_micros(self.moment(run)), run.id

    def is_past(self, position: tuple[int, str], other: tuple[int, str]) -> bool:
        """Whether a position comes after another one."""
        return position > other if self.rises else position < other


class RunQuery(Struct, frozen=True, kw_only=True):
    """Which runs. Filters combine and are applied before `limit`."""

    workflow: str | None = None
    status: frozenset[Status] = frozenset()
    parent: str | None = None
    attributes: dict[str, Attribute] = {}
    order: Order = Order.NEWEST
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
            parse_cursor(self.after, self.order)


class Page(Struct, Generic[T], frozen=True):
    """Some of what was found, and the cursor for the rest (None: that was all)."""

    items: list[T]
    next: str | None = None


def check_limit(limit: int) -> int:
    """Refuse a limit that is not between 1 and 10,000."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidValue(f"limit {limit} is out of range: use 1 to {MAX_LIMIT} and the cursor")
    return limit


def cursor_of(run: Run, order: Order = Order.NEWEST) -> str:
    """The cursor that goes on after `run`."""
    return cursor_at(order.position(run), order)


def cursor_at(position: tuple[int, str], order: Order = Order.NEWEST) -> str:
    """The cursor that goes on after a position."""
    named = position if order is Order.NEWEST else (*position, order)
    return base64.urlsafe_b64encode(msgspec.json.encode(named)).decode().rstrip("=")


def parse_cursor(cursor: str, order: Order = Order.NEWEST) -> tuple[int, str]:
    """The time in microseconds and the id that a cursor of an order names."""
    found, position = _read(cursor)
    if found is not order:
        raise InvalidValue(
            f"{cursor[:40]!r} is a cursor of the order {found.value!r}, not {order.value!r}: go on in "
            "the order in which the last page was"
        )
    return position


def order_of(cursor: str) -> Order:
    """The order that a cursor goes on in."""
    return _read(cursor)[0]


def _read(cursor: str) -> tuple[Order, tuple[int, str]]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        named = msgspec.json.decode(text, type=list[int | str])
        moment, id, *rest = named
        order = Order(str(rest[0])) if rest else Order.NEWEST
        if len(rest) > 1 or not isinstance(moment, int) or not isinstance(id, str):
            raise ValueError("not a position")
    except (ValueError, UnicodeError) as error:
        raise InvalidValue(
            f"{cursor[:40]!r} is not a cursor: pass on the one that the last page gave you"
        ) from error
    return order, (moment, id)


def _same(left: object, right: object) -> bool:
    # True == 1 in Python; in a filter they are different values.
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
    """The names of the tables, and of the schema that they are in: of the connection if None."""

    executions: str = EXECUTIONS
    entries: str = ENTRIES
    schema: str | None = None

    def check(self) -> None:
        """Refuse what is no name."""
        for name in (self.executions, self.entries, self.schema):
            if name is not None and not _NAME.fullmatch(name):
                raise InvalidValue(
                    f"{name!r} is no name of a table: use letters, digits and '_', up to 63"
                )
        if self.executions == self.entries:
            raise InvalidValue(f"{self.entries!r} is to hold both: give each a table of its own")

    def quoted(self, table: str) -> str:
        """A table as SQL names it."""
        return f'"{table}"' if self.schema is None else f'"{self.schema}"."{table}"'


def check_columns(table: str, wanted: tuple[str, ...], found: dict[str, bool]) -> None:
    """Refuse a table that the projection could not be written to. `found` tells of each column
    whether a row needs a value for it that nobody would give."""
    if not found:
        raise InvalidValue(
            f"there is no table {table!r}: run your migrations, or metadata.create_all, before a store "
            "with a projection is opened"
        )
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InvalidValue(
            f"the table {table!r} has no column {', '.join(missing)}: use the mixins of "
            "outlast.contrib.sqlalchemy, and migrate"
        )
    needy = [name for name, is_needy in found.items() if is_needy and name not in wanted]
    if needy:
        raise InvalidValue(
            f"the column {', '.join(needy)} of {table!r} may not be NULL and has no default: rows of "
            "runs could not be written. Allow NULL, or give it a server_default"
        )
