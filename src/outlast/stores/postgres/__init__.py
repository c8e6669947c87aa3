"""The store and queue in PostgreSQL: many processes, many machines, one database.

::

    store.py, queue.py        the ports
        │ one call each: a statement of sql/, most often a function of migrations/
    session.py                one user's hold on the database, from open to close
    database.py               calls, on connections of sources.py: ours, or the user's
        ├── server.py         what kind of server this is; schema.py: how far our tables are
        └── faults.py         the only place that knows the server's errors
    packing.py, parts.py      values as parameters; rows.py, outcomes.py: rows as values
"""

from outlast.stores.postgres.queue import PostgresQueue
from outlast.stores.postgres.store import PostgresStore

__all__ = ["PostgresQueue", "PostgresStore"]
