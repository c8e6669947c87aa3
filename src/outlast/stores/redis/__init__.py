"""The store and queue in Redis: one server, Sentinel, or a cluster.

::

    store.py, queue.py   the ports; session_store.py: what the parts of the store share
        │ scripts and plain reads: commit, claims, inbox, tasks, find, run_details, delete, fair_queue, …
    session.py                     connects; calls scripts, and passes the keys that they ask for
        ├── scripts.py, lua/       one static script per transition; lua/lib is what they share
        └── connection.py          single server or cluster; never sends a command twice
    packing.py, unpacking.py       values as arguments; replies as values
    location.py, driver_errors.py  the only other modules that know redis-py and its errors

A commit is one script on one partition, so it is atomic. Keys of a partition share a hash tag, so a cluster has them
in one slot. Messages to another partition go through an outbox (outbox.py).
"""

from outlast.stores.redis.queue import RedisQueue
from outlast.stores.redis.store import RedisClusterStore, RedisStore

__all__ = ["RedisClusterStore", "RedisQueue", "RedisStore"]
