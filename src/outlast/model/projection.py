"""Projection: a run and its audit lines in the shape of the seed's two tables.

The truth is in the store's own tables, with text ids and exact bytes. The projection is for others to
read and to join: it is written by triggers in the commit that changes a run, whoever commits.
"""

from __future__ import annotations

import re

from msgspec import Struct

from outlast.errors import InvalidValue

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
