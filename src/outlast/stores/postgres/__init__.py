"""The store and queue in PostgreSQL: many processes, many machines, one database.

::

    store.py = claims, inbox, tasks, find, run_details, delete, registry, transfer; commit.py: its one write
    queue.py = the queue port; fair_queue.py: policies and statistics
        │ each call is one statement of statements/, most often a function of functions/
    session.py          the use of the database by one store or queue
    database.py         pools and calls; connection.py: where connections come from
        ├── server.py          version and settings of the server
        ├── schema.py          migrations, functions, named statements
        ├── liveness.py        detects crashed owners; notifier.py: wake-ups by LISTEN and NOTIFY
        └── driver_errors.py   errors of the drivers as outlast's errors
    commit.py, commit_contents.py   values as parameters; rows.py: rows as values
"""

from outlast.stores.postgres.queue import PostgresQueue
from outlast.stores.postgres.store import PostgresStore

__all__ = ["PostgresQueue", "PostgresStore"]
