"""Rejections: runs that this worker's code cannot replay, and which other workers may try.

A takeover fails for good when code and history do not fit: a mismatch, a new required parameter, a value that can no
longer be decoded. Other code may fit. So the run is released with the hash of the code that failed, and the store does
not hand it to workers with that code again::

    takeover fails ──▶ a live worker has other code?  yes ──▶ released: Run.rejected_by has this code's hash
                                                      no  ──▶ parked: halted, wait_kind "mismatch"

A worker whose code has not tried a parked run claims it when it starts.
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
from outlast.ports.store import Store

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
    ) -> None:
        """Release a run; park it if no live worker has code that was not tried, or with `park`."""
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
            # That worker started meanwhile, and may have searched for parked runs a moment too early.
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
        """The live workers that have a workflow, in code that is none of these."""
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
                if run.wait_kind == MISMATCH and self.code not in run.rejections:
                    found.append(run.id)
                if len(found) == limit:
                    return found
        return found
