"""Tiny jobs in Celery, Dramatiq or huey. Run by their own Python, not by ours (bench/_peers.py):

    python -m bench.peers.jobs celery|dramatiq|huey URL COUNT

Adds COUNT jobs, one after the other as their documentation has it, then works them off in one
process: Celery in its `solo` pool, the fastest for jobs that do nothing, Dramatiq with its 8 threads,
huey with 8. Results are not kept. The clock runs from the first job to the last. Prints one JSON object.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time

from bench.peers._clock import wait_for_the_word

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
    begun = time.perf_counter()
    for number in range(count):
        add(number)
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
    return actor.send, lambda: dramatiq.Worker(broker, worker_threads=8).start()


def with_huey(url: str):
    """The same for huey, on Redis or on a file."""
    from huey import RedisHuey, SqliteHuey

    if url.startswith("redis"):
        huey = RedisHuey("bench", url=url, results=False)
    else:
        huey = SqliteHuey("bench", filename=url, results=False)
    task = huey.task()(job)
    return task, lambda: huey.create_consumer(workers=8, periodic=False).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
