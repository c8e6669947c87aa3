"""The store and queue in a SQLite file: durable, with nothing to install beside Python.

::

    store.py, queue.py       the ports
        │ work(connection): plain functions, one per operation, in
        │ committing, inboxes, claims, tasks, finding, deleting; SQL in sql/, tables in migrations/
    database.py              opens and closes; a call is a read or a write
        ├── writer.py        one transaction at a time: in the event loop if it is fast, else
        │                    in a thread (lane.py); checkpoints the log (log.py)
        └── lane.py          reads, the same way
    connection.py, faults.py the only places that know Python's sqlite3 and its errors
"""

from outlast.stores.sqlite.queue import SqliteQueue
from outlast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteQueue", "SqliteStore"]
