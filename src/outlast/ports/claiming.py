"""What adapters share when they hand out runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from outlast.errors import Undecodable

T = TypeVar("T")
log = logging.getLogger("outlast.stores")


def readable(read: Callable[..., T], *args: Any) -> T | None:
    """What `read` makes of a record, or None if the record is damaged: one such run must not keep
    all the others from being claimed. Whoever asks for that run is told."""
    try:
        return read(*args)
    except Undecodable as damage:
        log.error("a run is left alone, terminate or delete it: %s", damage)
        return None
