"""What a URL names: a store or a wake-up channel. The only place that knows adapters by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from outlast.errors import InvalidValue, MissingExtra
from outlast.ports.clock import Clock
from outlast.ports.notifier import WakeupChannel
from outlast.ports.store import Store

Adapters = Mapping[str, tuple[str, str, str | None]]
"""URL scheme → (module, class, extra). Imported when asked for, so that nothing else is."""

_STORES: Adapters = {
    "django": ("outlast.contrib.django.store", "store_at", "django"),
    "memory": ("outlast.stores.memory", "MemoryStore", None),
    "postgres": ("outlast.stores.postgres", "PostgresStore", "postgres"),
    "postgresql": ("outlast.stores.postgres", "PostgresStore", "postgres"),
    "sqlite": ("outlast.stores.sqlite", "SqliteStore", None),
    "redis": ("outlast.stores.redis", "RedisStore", "redis"),
    "rediss": ("outlast.stores.redis", "RedisStore", "redis"),
    "redis+sentinel": ("outlast.stores.redis", "RedisStore", "redis"),
    "redis+cluster": ("outlast.stores.redis", "RedisClusterStore", "redis"),
    "rediss+cluster": ("outlast.stores.redis", "RedisClusterStore", "redis"),
}
_WAKEUP_CHANNELS: Adapters = dict.fromkeys(
    ("sqs", "sqs+http", "sqs+https"), ("outlast.queues.sqs", "SqsWakeups", "sqs")
)


def resolve(url: str, *, clock: Clock | None = None) -> Store:
    """The store that a URL names: ``sqlite:///shop.db``, ``memory:``."""
    scheme, store_class = _adapter(url, _STORES, "store")
    store: Store
    store = store_class(clock=clock) if scheme == "memory" else store_class(url, clock=clock)
    return store


def store_of(given: str | Store, *, clock: Clock | None = None) -> Store:
    """The store that is passed, or that a URL names."""
    if isinstance(given, str):
        return resolve(given, clock=clock)
    if not hasattr(given, "clock"):
        raise InvalidValue(
            f"{given!r} is not a store: use a URL such as 'sqlite:///shop.db', or a Store"
        )
    return given


def resolve_wakeup_channel(url: str) -> WakeupChannel:
    """The wake-up channel that a URL names: ``sqs://wakeups?region=eu-central-1``."""
    wakeup_channel: WakeupChannel = _adapter(url, _WAKEUP_CHANNELS, "wakeup_channel")[1].at(url)
    return wakeup_channel


def _adapter(url: str, known: Adapters, what: str) -> tuple[str, Any]:
    scheme, colon, _ = url.partition(":")
    if scheme not in known or not colon:
        # Not the whole of it: what comes after may have a password.
        schemes = ", ".join(f"{name}:" for name in sorted(known))
        shown = f"{scheme}:…" if colon else url
        raise InvalidValue(
            f"{shown!r} does not name a {what}: use a URL that starts with {schemes}"
        )
    module, name, extra = known[scheme]
    try:
        return scheme, getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise MissingExtra(f"{scheme} needs an extra: pip install 'outlast[{extra}]'") from error
