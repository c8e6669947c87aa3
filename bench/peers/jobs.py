"""Tiny jobs in Celery, Dramatiq or huey. Run by their own Python, not by ours (bench/_peers.py):

    python -m bench.peers.jobs celery|dramatiq|huey URL COUNT

Adds COUNT jobs, then works them off in one process. None of them can add several at once (a group of
Celery or Dramatiq is sent one by one), so that several threads add them, which share a sync of the
server. Celery works in its `solo` pool, the fastest for jobs that do nothing, Dramatiq and huey in
threads: as many as were fastest, one for huey on a file. Results are not kept. The clock runs from the
first job to the last. Prints one JSON object.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from bench.peers._clock import wait_for_the_word

ADDING = 8
"""Threads that add jobs, to a server."""

WORKING = {"dramatiq": 16, "huey": 8}
"""Threads that do them."""

done = 0
first = 0.0
lock = threading.Lock()
over = threading.Event()
count = int(sys.argv[3])
enqueued = 0.0


def job(number: int) -> None:  # noqa: ARG001 - what a job is about
    """Do next to nothing, and tell when it was the last."""
    global done, first
    with lock:
        done += 1
        if done == 1:
            first = time.perf_counter()
        if done == count:
            seconds = time.perf_counter() - first
            told = json.dumps({"enqueue": enqueued, "work": seconds})
            os.write(1, f"{told}\n".encode())  # Celery takes sys.stdout for itself
            os._exit(0)


def main(name: str, url: str) -> None:
    """Add jobs, then do them."""
    global enqueued
    logging.disable(logging.CRITICAL)
    add, work = {"celery": with_celery, "dramatiq": with_dramatiq, "huey": with_huey}[name](url)
    wait_for_the_word()
    waiting, callers = iter(range(count)), ADDING if url.startswith("redis") else 1

    def add_some() -> None:
        for number in waiting:
            add(number)

    begun = time.perf_counter()
    with ThreadPoolExecutor(callers) as threads:
        added = [threads.submit(add_some) for _ in range(callers)]
    for one in added:
        one.result()
    enqueued = time.perf_counter() - begun
    work()
    over.wait()


def with_celery(url: str):
    """Celery: how to add a job, and how to work."""
    from celery import Celery

    app = Celery("bench", broker=url)
    app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
    task = app.task(job, name="job")
    return task.delay, lambda: app.Worker(pool="solo", quiet=True).start()


def with_dramatiq(url: str):
    """The same for Dramatiq."""
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=url)
    dramatiq.set_broker(broker)
    actor = dramatiq.actor(job)
    return actor.send, lambda: dramatiq.Worker(broker, worker_threads=WORKING["dramatiq"]).start()


def with_huey(url: str):
    """The same for huey, on Redis or on a file."""
    from huey import RedisHuey, SqliteHuey

    if url.startswith("redis"):
        huey, workers = RedisHuey("bench", url=url, results=False), WORKING["huey"]
    else:
        huey, workers = SqliteHuey("bench", filename=url, results=False), 1
    task = huey.task()(job)
    return task, lambda: huey.create_consumer(workers=workers, periodic=False).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
