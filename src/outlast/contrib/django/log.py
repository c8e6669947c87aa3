"""The log of Django's SQLite file: kept short by whoever writes, worker or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from outlast.stores.sqlite.wal import WalCheckpointer


def keep(connection: Any) -> None:
    """See to the log of a connection that has just been made."""
    keeper = _keeper(_path(connection))
    keeper.take_over(connection.connection)
    wrappers = connection.execute_wrappers  # they outlive the driver's connection
    wrappers[:] = [one for one in wrappers if not isinstance(one, _Look)]
    wrappers.append(_Look(keeper))


class _Look:
    """Before what begins a transaction, or is one, the log is looked at."""

    def __init__(self, keeper: WalCheckpointer) -> None:
        self._keeper = keeper

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if not context["connection"].connection.in_transaction and self._keeper.is_due():
            self._keeper.checkpoint()
        return execute(sql, params, many, context)


def _path(connection: Any) -> str:
    rows = connection.connection.execute("PRAGMA database_list").fetchall()
    return str(next(file for _, name, file in rows if name == "main"))


@lru_cache
def _keeper(path: str) -> WalCheckpointer:
    return WalCheckpointer(path)
