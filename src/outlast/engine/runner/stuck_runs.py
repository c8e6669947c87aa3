"""Rejections: runs that this worker's code cannot replay, and which other workers may try.

A takeover fails for good when code and history do not fit: a mismatch, a new required parameter, a value that can no
longer be decoded. Other code may fit. So the run is released with the hash of the code that failed, and the store does
not hand it to workers with that code again::

    takeover fails ──▶ a live worker has other code?  yes ──▶ released: Run.rejected_by has this code's hash
                                                      no  ──▶ parked: halted, wait_kind "mismatch"

The same happens to a run whose code raised a programming error (wait_kind "bug"): see `bug_parking`.

A worker whose code has not tried a parked run claims it when it starts.

Watchdog: finds and reports runs of this process that are stuck.

A claimed run has something in flight (a step, a map, a check of a child id, a commit), or it waits for a message and is
soon parked. A run with an open step or map that nothing executes is stuck: that is a fault of the engine. Found twice
in a row, it is reported. Runs that are dropped again and again, and takeovers that keep failing, are reported, too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from outlast.engine.definitions.definition import WorkflowDefinition, code_hash
from outlast.engine.replay.commit_builder import park_commit, reject_commit
from outlast.engine.replay.error_text import at_error, describe, details_of, text_of
from outlast.engine.runner.admission import leaves_queue
from outlast.engine.runner.group_commit import CommitBatcher
from outlast.errors import OutlastError
from outlast.model.claim import Claim, Worker
from outlast.model.payloads import chain_text
from outlast.model.query import RunQuery
from outlast.model.run import BUG, MISMATCH, Run, Status
from outlast.ports.clock import Clock
from outlast.ports.port import Capability
from outlast.ports.store import Store

if TYPE_CHECKING:
    from outlast.engine.runner.claimer import Claimer
    from outlast.engine.runner.driver_pool import DriverPool

KEPT = 8
"""How many hashes a run keeps: the latest."""
TRUSTED_S = 1.0
"""How long a list of live workers is used: a bad deploy rejects many runs at once."""

log = logging.getLogger("outlast.engine")


class Rejections:
    """Releases or parks the runs that this engine's code cannot replay."""

    def __init__(
        self,
        store: Store,
        workflows: Mapping[str, WorkflowDefinition],
        batcher: CommitBatcher,
        owner: str,
        *,
        timeout_s: float,
    ) -> None:
        self._store = store
        self._workflows = workflows
        self._batcher = batcher
        self._owner = owner
        self._timeout_s = timeout_s
        self._code: str | None = None
        self._live: Sequence[Worker] = ()
        self._asked: float | None = None

    @property
    def code(self) -> str:
        """The hash of this process's code."""
        if self._code is None:
            self._code = code_hash(self._workflows.values())
        return self._code

    async def reject(
        self,
        run: Run,
        claim: Claim,
        problem: Exception,
        *,
        sequence: int | None = None,
        park: bool = False,
        kind: str = MISMATCH,
    ) -> None:
        """Release a run; park it if no live worker has code that was not tried, or with `park`. `kind` is the wait kind
        of a parked run: its code raised the problem (`BUG`), or does not match its history."""
        codes = (*(code for code in run.rejections if code != self.code), self.code)[-KEPT:]
        reason = text_of(problem) if isinstance(problem, OutlastError) else describe(problem)
        if kind == BUG:
            reason = f"its code raised {reason}{at_error(problem)}. Nothing was compensated"
            places = chain_text(details_of(problem))
            log.error("workflow %r raised in run %s:\n%s", run.workflow, run.id, places)
        at = run.sequence if sequence is None else sequence
        others = [] if park else await self.untried(run.workflow, codes)
        if others:
            log.warning(
                "run %s is left to workers with other code (%s): %s",
                run.id,
                others[0].owner,
                reason,
            )
            await self._batcher.commit(
                reject_commit(claim, at, reason, codes), patience=self._timeout_s
            )
            return
        log.error("run %s is halted: %s", run.id, reason)
        parking = park_commit(claim, at, reason, codes, kind)
        parking = await leaves_queue(self._store, parking, timeout_s=self._timeout_s)
        await self._batcher.commit(parking, patience=self._timeout_s)
        if not park and await self.untried(run.workflow, codes, reload=True):
            # That worker started meanwhile, and may have searched for parked runs a moment too early.
            for one in await self._store.claim_runs(
                self._owner, self._timeout_s, run_ids=[run.id], timeout=self._timeout_s
            ):
                if one.run.uid == run.uid and one.run.is_parked:
                    back = reject_commit(one.claim, one.run.sequence, reason, codes, was=run)
                    await self._batcher.commit(back, patience=self._timeout_s)
                else:
                    await self._store.release([one.claim], timeout=self._timeout_s)

    async def untried(
        self, workflow: str, codes: Sequence[str], *, reload: bool = False
    ) -> list[Worker]:
        """The live workers that have a workflow, in code that is none of these."""
        if Capability.WORKERS not in self._store.capabilities:
            return []
        clock = self._store.clock
        if reload or self._asked is None or clock.monotonic() - self._asked > TRUSTED_S:
            now = await self._store.now(timeout=self._timeout_s)
            known = await self._store.workers(timeout=self._timeout_s)
            self._live = [worker for worker in known if worker.is_alive(now)]
            self._asked = clock.monotonic()
        return [
            worker
            for worker in self._live
            if workflow in worker.workflows and worker.code and worker.code not in codes
        ]

    async def parked_for_others(self, limit: int) -> list[str]:
        """Up to `limit` parked runs that this code has not tried."""
        store = self._store
        if Capability.FIND not in store.capabilities or limit < 1:
            return []
        found: list[str] = []
        counts = await store.counts(timeout=self._timeout_s)
        for workflow in self._workflows:
            if not counts.get((workflow, Status.HALTED)):
                continue
            query = RunQuery(workflow=workflow, status=frozenset({Status.HALTED}))
            async for run in store.find_all(query):
                if run.is_parked and self.code not in run.rejections:
                    found.append(run.id)
                if len(found) == limit:
                    return found
        return found


CHECK_INTERVAL_S = 1.0
FAILURES = 3
"""How many failures in a row are reported."""
MAX_REPORTED = 20
"""How many stuck runs a heartbeat contains."""

log = logging.getLogger("outlast.engine")


class Watchdog:
    """Checks the runs of one engine when their leases are renewed, at most every `CHECK_INTERVAL_S`."""

    def __init__(self, clock: Clock, drivers: DriverPool, claimer: Claimer) -> None:
        self._clock = clock
        self._drivers = drivers
        self._claimer = claimer
        self._next = 0.0
        self._doubtful: dict[str, list[str]] = {}
        self._stuck: dict[str, str] = {}

    @property
    def troubles(self) -> dict[str, str]:
        """The runs that are stuck here, and why."""
        failed = {
            run_id: f"{what}, {said}"
            for what, failures in (
                ("it was dropped", self._drivers.dropped),
                ("it could not be taken over", self._claimer.failing),
            )
            for run_id, said in failures.lasting(FAILURES).items()
        }
        return {**failed, **self._stuck}

    def check(self) -> None:
        """Check all runs that this process drives, if it is time."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + CHECK_INTERVAL_S
        found = self._drivers.stalled()
        stuck = {}
        for run_id, keys in found.items():
            if self._doubtful.get(run_id) == keys:
                names = ", ".join(map(repr, keys))
                stuck[run_id] = f"{names} is open, and its process does not execute it"
                if run_id not in self._stuck:
                    log.error(
                        "run %s is stuck: %s. Restart this worker, so that it starts again. This is a fault of "
                        "outlast: please report it with the output of `outlast export`",
                        run_id, stuck[run_id],
                    )  # fmt: skip
        self._doubtful, self._stuck = found, stuck


MAX_KEPT = 1000
FORGOTTEN_AFTER = 5
"""In leases: a run that fails here again does so within one."""


class Failures:
    """How often in a row runs have failed in this process, and why. An entry is forgotten after some leases: another
    process may drive the run by then, and this one does not learn of it."""

    def __init__(self, clock: Clock, lease: float) -> None:
        self._clock = clock
        self._kept_for = FORGOTTEN_AFTER * lease
        self._failed: dict[str, tuple[int, str, float]] = {}

    def add(self, run_id: str, error: str) -> int:
        """Count a failure of a run; how many in a row it has had."""
        times, _, at = self._failed.pop(run_id, (0, "", 0.0))
        now = self._clock.monotonic()
        times = 1 if now - at > self._kept_for else times + 1
        self._failed[run_id] = (times, error, now)
        while len(self._failed) > MAX_KEPT:
            del self._failed[next(iter(self._failed))]
        return times

    def end(self, run_id: str) -> None:
        """Forget the failures of a run."""
        self._failed.pop(run_id, None)

    def lasting(self, times: int) -> dict[str, str]:
        """The runs that recently failed at least so often in a row: how often, and why."""
        since = self._clock.monotonic() - self._kept_for
        return {
            run_id: f"{often} times in a row: {error}"
            for run_id, (often, error, at) in self._failed.items()
            if often >= times and at >= since
        }
