"""Waiting for runs that another transaction has locked, written once over the port for every store."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.errors import Busy
from outlast.model.commit import Commit, Outcome
from outlast.ports.optional import OptionalMethods

LOCK_PATIENCE_S = 30.0
"""How long a caller waits for a run that another transaction has locked, unless it says otherwise. The
transaction may be the caller's own, which then waits for itself: so there is an end."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.5


class LockMethods(OptionalMethods):
    """Commits of callers that would rather wait than be told `Busy`."""

    async def commit_when_free(
        self,
        commits: Sequence[Commit],
        *,
        patience: float = LOCK_PATIENCE_S,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """As `commit`, but a run that another transaction has locked is waited for: `Busy` is the
        outcome of a commit whose run was locked for `patience` seconds. `timeout` is for each call of
        the store. A store that can wait inside its database overrides `_commit_waiting`."""
        deadline = self.clock.monotonic() + patience
        outcomes: list[Outcome] = [Busy("not tried")] * len(commits)
        open = list(range(len(commits)))
        pause = FIRST_PAUSE_S
        while True:
            left = max(deadline - self.clock.monotonic(), 0.0)
            part = [commits[i] for i in open]
            found: Sequence[Outcome]
            try:
                found = await self._commit_waiting(part, left, timeout)
            except Busy as busy:
                found = [busy] * len(part)
            for i, outcome in zip(open, found, strict=True):
                outcomes[i] = outcome
            open = [i for i in open if isinstance(outcomes[i], Busy)]
            left = deadline - self.clock.monotonic()
            if not open or left <= 0:
                return [locked(one, patience) if isinstance(one, Busy) else one for one in outcomes]
            await self.clock.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _commit_one(self, commit: Commit, timeout: float | None) -> Outcome:
        """The outcome of one commit; a caller that gives a `timeout` waits so long for a lock."""
        if timeout is None:
            return (await self.commit([commit]))[0]
        return (await self.commit_when_free([commit], patience=timeout, timeout=timeout))[0]

    async def _commit_waiting(
        self, commits: Sequence[Commit], wait: float, timeout: float | None
    ) -> list[Outcome]:
        """`commit`; inside the database, wait up to `wait` seconds for locks if that can be done."""
        return await self.commit(commits, timeout=timeout)


def locked(busy: Busy, patience: float) -> Busy:
    """What to say to a caller that has waited in vain."""
    if patience < 1:
        return busy
    return Busy(
        f"{str(busy).rstrip('.')}. Waited {patience:g} s: if a transaction of your own holds the lock "
        "(app.on(…), a transactional step), commit it first or make this call within it; else wait "
        "longer with a greater timeout"
    )
