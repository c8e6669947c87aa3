"""The servers that the tests run against, by name. Each takes a folder, starts, and returns where it
is, as environment variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.serving.postgres import start_postgres
from tools.serving.redis import start_redis, start_redis_cluster
from tools.serving.sqs import start_sqs

SERVERS: dict[str, Callable[[Path], dict[str, str]]] = {
    "postgres": start_postgres,
    "redis": start_redis,
    "redis-cluster": start_redis_cluster,
    "sqs": start_sqs,
}
