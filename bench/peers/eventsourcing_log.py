"""Appends to and reads from eventsourcing's recorder, the layer below its aggregates:

    python -m bench.peers.eventsourcing_log PLACE CASES READS

CASES is a list in JSON of `[appends, events in each]`, READS one of `[histories, events in each]`.
Events are made before the clock starts, with as many bytes as ours. Prints the seconds of each.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import os
import sys
import time
import uuid

from eventsourcing.persistence import InfrastructureFactory, StoredEvent
from eventsourcing.utils import Environment

from bench.peers import _sqlite
from bench.peers._clock import made_ready, wait_for_the_word

STATE = (
    b'{"step": "charge-card", "attempt": 1, "number": 1, '
    b'"output": {"receipt": "r-123", "cents": 1999}}'
)


def recorder(place: str):
    """Its recorder on a file, or a database in PostgreSQL."""
    if not place.startswith("postgresql:"):
        settings = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": place}
    else:
        address, _, name = place.removeprefix("postgresql://").partition("/")
        user, _, server = address.partition("@")
        host, _, port = server.partition(":")
        settings = {
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": name,
            "POSTGRES_HOST": host,
            "POSTGRES_PORT": port,
            "POSTGRES_USER": user,
            "POSTGRES_PASSWORD": "unused",
        }
    return InfrastructureFactory.construct(Environment("bench", settings)).application_recorder()


def events(appends: int, size: int) -> list[list[StoredEvent]]:
    """What is going to be appended to one aggregate."""
    id = uuid.uuid4()
    return [
        [StoredEvent(id, one * size + n + 1, "bench:Completed", STATE) for n in range(size)]
        for one in range(appends)
    ]


def main(place: str, cases: list[list[int]], reads: list[list[int]]) -> None:
    """Measure."""
    record = recorder(place)
    record.insert_events(events(1, 1)[0])
    found = {"append": [], "read": []}
    wait_for_the_word()
    for appends, size in cases:
        ready = events(appends, size)
        with made_ready():
            begun = time.perf_counter()
            for batch in ready:
                record.insert_events(batch)
            found["append"].append(time.perf_counter() - begun)
    for histories, size in reads:
        ids = []
        for _ in range(histories):
            [batch] = events(1, size)
            record.insert_events(batch)
            ids.append(batch[0].originator_id)
        with made_ready():
            begun = time.perf_counter()
            for id in ids:
                if len(record.select_events(id)) != size:
                    raise AssertionError("events are missing")
            found["read"].append(time.perf_counter() - begun)
    on_postgres = place.startswith("postgresql:")
    found["settings"] = "PostgreSQL, as it comes" if on_postgres else _sqlite.settings(place)
    os.write(1, f"{json.dumps(found)}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
