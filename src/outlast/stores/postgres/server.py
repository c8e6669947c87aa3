"""The server: its version, settings and durability, read once when a store opens."""

from __future__ import annotations

import logging
from typing import Any

from msgspec import Struct

from outlast.errors import InvalidValue, StoreFault
from outlast.ports.capabilities import Durability
from outlast.stores.postgres.rows import Row

_logger = logging.getLogger("outlast.postgres")

MIN_VERSION = 130000


class Server(Struct, frozen=True, kw_only=True):
    """Facts for operators, and for the choice of connections."""

    version: str
    pooled: bool
    fsync: str
    synchronous_commit: str
    full_page_writes: str
    standbys: str
    in_recovery: bool

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""
        if self.fsync != "on" or self.full_page_writes != "on" or self.synchronous_commit == "off":
            return Durability.PROCESS_CRASH
        if self.standbys and self.synchronous_commit not in ("local", "off"):
            return Durability.NODE_LOSS
        return Durability.POWER_LOSS

    @property
    def warnings(self) -> list[str]:
        """Unsafe settings, each with what to change."""
        found = []
        if self.fsync != "on":
            found.append(
                "fsync=off: a crash of the machine can damage the whole database; turn it on"
            )
        if self.full_page_writes != "on":
            found.append(
                "full_page_writes=off: a power loss can damage pages; turn it on unless the disk "
                "writes them whole"
            )
        if self.synchronous_commit == "off":
            found.append(
                "synchronous_commit=off: a crash of the server loses the last commits although "
                "they were acknowledged; set it to on for this database or user"
            )
        return found

    def report(self, where: str) -> None:
        """Log the warnings."""
        for warning in self.warnings:
            _logger.warning("%s: %s", where, warning)


def read_server(row: Row, connection_pid: int, where: str) -> Server:
    """The row of `describe_server`. Raises for a server that outlast does not support."""
    number, encoding, pid, fsync, synchronous, pages, standbys, recovering, version, isolation = row
    if number < MIN_VERSION:
        raise StoreFault(f"{where} runs PostgreSQL {version}: 13 or later is needed")
    if encoding != "UTF8":
        raise StoreFault(
            f"{where} has the encoding {encoding}: create the database with ENCODING 'UTF8'"
        )
    if isolation != "read committed":
        # A statement must see what was committed while it waited for a lock.
        raise StoreFault(
            f"{where} has default_transaction_isolation={isolation!r}: set it to 'read committed' "
            "for this user (ALTER ROLE … SET default_transaction_isolation = 'read committed')"
        )
    return Server(
        version=version,
        # A pooler invents the process id that its clients see.
        pooled=pid != connection_pid,
        fsync=fsync,
        synchronous_commit=synchronous,
        full_page_writes=pages,
        standbys=standbys,
        in_recovery=recovering,
    )


def check_pool_size(size: Any, name: str = "pool_size") -> int:
    """Validate a number of connections."""
    if not isinstance(size, int) or not 1 <= size <= 1000:
        raise InvalidValue(f"{name}={size!r}: use a number of connections from 1 to 1000")
    return size
