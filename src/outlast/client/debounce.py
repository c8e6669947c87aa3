"""Debounce: many requests for one run, which starts when they have been quiet for a while.

The run waits in a queue for its time. Each further request replaces it, with its own arguments and a later
time, in one commit that only the pending run allows.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import msgspec

from outlast.client.start import StartRequest
from outlast.engine.replay.new_run import QUEUED, NewRun
from outlast.errors import Busy, Conflict, Fenced, InvalidValue, NotFound, RunClosed, RunExists
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.query import RunQuery
from outlast.model.queue_policy import QueueOptions
from outlast.model.run import Run, Status
from outlast.model.times import check_delay, from_micros, to_micros
from outlast.ports.store import Store

RETRY_DELAYS_S = (0.02, 0.05, 0.1, 0.2, *[0.4] * 40)
"""At most, before each further attempt while another transaction has the run locked: most likely it is a
request for the same run."""
KEY, SINCE = "outlast.debounced", "outlast.debounced_since"
_jitter = random.Random()


def check_times(quiet: float, at_most: float | None) -> None:
    """Refuse times in which nothing could ever start, or everything at once."""
    check_delay(quiet)
    check_delay(0.0 if at_most is None else at_most)
    if quiet == 0 or (at_most is not None and at_most < quiet):
        raise InvalidValue(
            f"quiet={quiet}, at_most={at_most} is not possible: quiet has to be more than 0, and "
            "at_most no less than quiet"
        )


async def debounced(
    store: Store,
    request: StartRequest,
    *,
    key: str,
    quiet: float,
    at_most: float | None,
    queue: QueueOptions,
) -> str:
    """Put a start off, or begin to wait for one; the id of the run."""
    prefix = f"{request.workflow}.{key}."
    query = RunQuery(workflow=request.workflow, attributes={KEY: key}, limit=1)
    newest = next(iter((await store.find(query)).items), None)
    delays = list(RETRY_DELAYS_S)
    while True:
        now = await store.now()
        pending = newest if newest is not None and _is_pending(newest, request, key) else None
        since = now if pending is None else _since(pending, now)
        due = now + timedelta(seconds=quiet)
        if at_most is not None:
            due = min(due, since + timedelta(seconds=at_most))
        new = NewRun(
            id=f"{prefix}{_generation(newest, prefix) + 1}" if pending is None else pending.id,
            workflow=request.workflow,
            definition=request.definition,
            input=request.input,
            creation=Creation.NEW if pending is None else Creation.REPLACE,
            attributes={KEY: key, SINCE: to_micros(since)},
            queue=QueueOptions(queue.queue, queue.key, queue.priority, max(due, now)).resolved(now),
        )
        commit = new.commit()
        if pending is not None:
            commit = _replacing(pending, commit)
        outcome: Outcome
        try:
            [outcome] = await store.commit([commit])
        except Busy as busy:
            outcome = busy
        if isinstance(outcome, Committed):
            return new.id
        if isinstance(outcome, Busy) and delays:
            await store.clock.sleep(_jitter.uniform(0.0, delays.pop(0)))
        elif not isinstance(outcome, RunExists | Fenced | Conflict | NotFound | RunClosed):
            raise outcome
        # Another request was faster, or a worker has started the run.
        newest = await store.find_one(new.id)


def _is_pending(run: Run, request: StartRequest, key: str) -> bool:
    """Whether it is the run of that key, and has not started."""
    own = run.workflow == request.workflow and run.attributes.get(KEY) == key
    return own and run.status is Status.PENDING and run.wait_kind == QUEUED


def _since(run: Run, now: datetime) -> datetime:
    since = run.attributes.get(SINCE)
    return from_micros(since) if isinstance(since, int) else now


def _generation(newest: Run | None, prefix: str) -> int:
    number = "" if newest is None else newest.id.removeprefix(prefix)
    return int(number) if number.isdigit() else 0


def _replacing(run: Run, commit: Commit) -> Commit:
    """The commit that replaces a run which has not started, and only that life of it."""
    return msgspec.structs.replace(
        commit,
        uid=run.uid,
        token=run.token or None,
        expected=run.sequence,
        force=False,
        carry_inbox=True,
    )
