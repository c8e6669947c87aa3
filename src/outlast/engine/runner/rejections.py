"""Rejections: runs that cannot go on with the code that is here, and who may try them instead.

A takeover fails for good when code and history do not fit: a mismatch, a new required parameter, a value that
can no longer be decoded. It says nothing about other code. So the run is released, marked with the hash of the
code that failed, and workers with that code are not handed it again::

    takeover fails ──▶ a live worker has other code?  yes ──▶ released: Run.rejected_by has this code's hash
                                                      no  ──▶ parked: halted, wait_kind "mismatch"

A worker with code that a parked run has not seen takes it up again when it starts, unasked.

Failures: what has gone wrong with runs again and again in this process, as far as it is news.

A run that fails here may be driven elsewhere, and this process never hears of it. So what has not failed
for some time is forgotten, and a worker does not speak for ever of a run that has long ended.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from outlast.engine.definitions.definition import WorkflowDefinition, code_hash
from outlast.engine.replay.commit_builder import park_commit, reject_commit
from outlast.engine.replay.error_text import describe, text_of
from outlast.engine.runner.admission import leaves_queue
from outlast.engine.runner.group_commit import CommitBatcher
from outlast.errors import OutlastError
from outlast.model.claim import Claim
from outlast.model.query import RunQuery
from outlast.model.run import MISMATCH, Run, Status
from outlast.model.worker import Worker
from outlast.ports.capabilities import Capability
from outlast.ports.clock import Clock
from outlast.ports.store import Store

KEPT = 8
"""How many hashes a run remembers, the latest: older ones belong to deploys that are long gone."""
TRUSTED_S = 1.0
"""How long an answer about live workers is used: a bad deploy rejects many runs at once."""

log = logging.getLogger("outlast.engine")


class Rejections:
    """Decides what becomes of runs that this engine's code cannot go on with."""

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
        """The hash of the code that is here."""
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
    ) -> None:
        """Release a run, or park it where no live worker has code that was not tried (or with `park`)."""
        codes = (*(code for code in run.rejections if code != self.code), self.code)[-KEPT:]
        reason = text_of(problem) if isinstance(problem, OutlastError) else describe(problem)
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
        parking = park_commit(claim, at, reason, codes)
        parking = await leaves_queue(self._store, parking, timeout_s=self._timeout_s)
        await self._batcher.commit(parking, patience=self._timeout_s)
        if not park and await self.untried(run.workflow, codes, afresh=True):
            # It began meanwhile, and may have looked for parked runs a moment too early.
            for one in await self._store.claim_runs(
                self._owner, self._timeout_s, run_ids=[run.id], timeout=self._timeout_s
            ):
                if one.run.uid == run.uid and one.run.wait_kind == MISMATCH:
                    back = reject_commit(one.claim, one.run.sequence, reason, codes, was=run)
                    await self._batcher.commit(back, patience=self._timeout_s)
                else:
                    await self._store.release([one.claim], timeout=self._timeout_s)

    async def untried(
        self, workflow: str, codes: Sequence[str], *, afresh: bool = False
    ) -> list[Worker]:
        """The live workers that have a workflow in other code than these."""
        if Capability.WORKERS not in self._store.capabilities:
            return []
        clock = self._store.clock
        if afresh or self._asked is None or clock.monotonic() - self._asked > TRUSTED_S:
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
        """Up to `limit` runs that are parked and that this code has not tried."""
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
                if run.wait_kind == MISMATCH and self.code not in run.rejections:
                    found.append(run.id)
                if len(found) == limit:
                    return found
        return found


MAX_KEPT = 1000
FORGOTTEN_AFTER = 5
"""Leases: a run that fails is tried again within one, and nobody else has had it then."""


class Failures:
    """How often in a row runs have failed, and why; for a process with leases of so many seconds."""

    def __init__(self, clock: Clock, lease: float) -> None:
        self._clock = clock
        self._kept_for = FORGOTTEN_AFTER * lease
        self._failed: dict[str, tuple[int, str, float]] = {}

    def add(self, run_id: str, error: str) -> int:
        """A run has failed; how often in a row it has now."""
        times, _, at = self._failed.pop(run_id, (0, "", 0.0))
        now = self._clock.monotonic()
        times = 1 if now - at > self._kept_for else times + 1
        self._failed[run_id] = (times, error, now)
        while len(self._failed) > MAX_KEPT:
            del self._failed[next(iter(self._failed))]
        return times

    def end(self, run_id: str) -> None:
        """It has not failed this time."""
        self._failed.pop(run_id, None)

    def lasting(self, times: int) -> dict[str, str]:
        """The runs that have failed at least so often, of late: how often, and why."""
        since = self._clock.monotonic() - self._kept_for
        return {
            run_id: f"{often} times in a row: {error}"
            for run_id, (often, error, at) in self._failed.items()
            if often >= times and at >= since
        }
