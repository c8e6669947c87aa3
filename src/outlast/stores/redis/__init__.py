"""The store and queue in Redis: one server, Sentinel, or a cluster.

::

    store.py, details.py, queue.py   the ports
        │ calls of scripts and plain reads, in committing, claims, sending, tasks, finding, parts, …
    session.py                       opens and closes; sends calls, gives scripts the keys they want
        ├── scripts.py, lua/         one static script per transition; lua/lib is what they share
        └── link.py                  single or cluster; never sends anything twice
    location.py, faults.py           the only other places that know redis-py and its errors

A commit is one script on one partition, so it is atomic. Keys of a partition share a hash tag, so a
cluster has them in one slot. What concerns another partition goes through an outbox (relay.py).
"""

from outlast.stores.redis.queue import RedisQueue
from outlast.stores.redis.store import RedisClusterStore, RedisStore

__all__ = ["RedisClusterStore", "RedisQueue", "RedisStore"]
