"""SQLite: the store and the queue in one file. Durable, and nothing to install beside Python.

::

    store.py, queue.py        the ports
        │ functions of a connection, one file for each topic: commit, claims, inbox, tasks,
        │ fair_queue, queue_stats, find, delete, run_details, registry, transfer
    session.py                the use of the file by one store or queue; a call is a read or a write
    database.py               opens and closes the file
        ├── writer.py         one transaction at a time: in the event loop if commits are fast, else
        │                     in a thread; small writes share one (write_batching.py)
        ├── connection_worker.py   reads, the same way
        └── wal.py            checkpoints of the write-ahead log
    connection.py, driver_errors.py   the only files that know Python's sqlite3 and its errors
"""

from outlast.stores.sqlite.queue import SqliteQueue
from outlast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteQueue", "SqliteStore"]
