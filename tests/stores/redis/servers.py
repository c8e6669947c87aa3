"""The Redis servers that the tests of this folder run on, and stores of their own on them."""

from __future__ import annotations

import os
import uuid
from typing import Any

import pytest

from outlast.stores.redis import RedisClusterStore, RedisStore

SINGLE, CLUSTER = "OUTLAST_TEST_REDIS", "OUTLAST_TEST_REDIS_CLUSTER"


def url_of(variable: str) -> str:
    """The URL of a server. Without one the tests fail: they are not skipped in silence."""
    url = os.environ.get(variable)
    if not url:
        pytest.fail(
            f"{variable} is not set: run `./dev test`, which starts the servers, or "
            "`./dev python -m tools.servers redis redis-cluster -- COMMAND`"
        )
    return url


def own_prefix() -> str:
    """A prefix that nobody else uses."""
    return f"t:{uuid.uuid4().hex}"


def single(**options: Any) -> RedisStore:
    """A store on the single server, under a prefix of its own; kept for ever, unless told."""
    options = {"prefix": own_prefix(), "retention": None, **options}
    return RedisStore(url_of(SINGLE), **options)


def clustered(**options: Any) -> RedisClusterStore:
    """A store on the cluster, in a few partitions."""
    options = {"prefix": own_prefix(), "retention": None, "partitions": 4, **options}
    return RedisClusterStore(url_of(CLUSTER), **options)


def again(store: RedisStore) -> RedisStore:
    """Another store on the same data."""
    told = store.describe()
    options: dict[str, Any] = {"prefix": told["prefix"], "clock": store._given_clock}
    if isinstance(store, RedisClusterStore):
        return clustered(partitions=told["partitions"], **options)
    return single(**options)
