"""RecordingStore: a client's view of a store, written down as evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeVar

from outlast.errors import OutlastError, UnknownOutcome
from outlast.model.claim import Claim, ClaimedRun
from outlast.model.commit import Commit, Committed
from outlast.model.run import Run
from outlast.model.run_contents import Receipt, Send
from outlast.ports.store import Store
from outlast.testkit.checker.evidence import Effect, Fate, Op
from outlast.testkit.wrapped_store import WrappedStore

T = TypeVar("T")


class Log:
    """What all clients did, in ticks of one clock."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.effects: list[Effect] = []
        self._ticks = count(1)

    def tick(self) -> int:
        """The next moment."""
        return next(self._ticks)


class RecordingStore(WrappedStore):
    """A store that writes into a log what one client asks of it and hears from it."""

    def __init__(self, inner: Store, log: Log, client: str = "client") -> None:
        super().__init__(inner)
        self.log = log
        self.client = client
        self._unsettled: dict[str, Commit] = {}

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        begun = self.log.tick()
        try:
            answer = await call()
        except BaseException as error:
            unsure = not isinstance(error, OutlastError) or isinstance(error, UnknownOutcome)
            fate = Fate.UNKNOWN if unsure else Fate.FAILED
            for value in _asked(name, args, kwargs):
                self._note(name, value, fate, begun, error, kwargs)
                if isinstance(value, Commit) and unsure:
                    self._unsettled[value.id] = value
            raise
        for value, fate, result in _answered(name, args, kwargs, answer):
            self._note(name, value, fate, begun, result, kwargs)
        if name == "find_one" and isinstance(answer, Run):
            self._settle(answer, begun)
        return answer

    def _settle(self, run: Run, begun: int) -> None:
        """A client that reads `Commit.id` back knows that its commit has happened: that is an
        acknowledgement like any other."""
        commit = self._unsettled.pop(run.commit_id, None)
        if commit is not None:
            committed = Committed(
                run_id=run.id,
                uid=run.uid,
                sequence=run.sequence,
                revision=run.revision,
                token=run.token,
                again=True,
            )
            self._note("commit", commit, Fate.OK, begun, committed, {})

    def _note(
        self,
        name: str,
        value: Commit | Send | str | None,
        fate: Fate,
        begun: int,
        result: object,
        kwargs: dict[str, Any],
    ) -> None:
        self.log.ops.append(
            Op(
                name=name,
                fate=fate,
                begun=begun,
                ended=self.log.tick(),
                client=self.client,
                value=value,
                result=result if not isinstance(result, asyncio.CancelledError) else None,
                atomic=bool(kwargs.get("atomic", False)),
            )
        )


def _asked(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Commit | Send | str | None]:
    """What a call wanted, in the parts that the checker looks at."""
    match name:
        case "commit":
            return list(args[0] if args else kwargs["commits"])
        case "send":
            return list(args[0] if args else kwargs["sends"])
        case "delete":
            return [args[0] if args else kwargs["run_id"]]
        case "expire":
            return [None]
        case _:
            return []


def _answered(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any
) -> list[tuple[Commit | Send | str | None, Fate, object]]:
    """The parts with their answers."""
    match name:
        case "commit" | "send":
            return [
                (
                    value,
                    Fate.OK if isinstance(result, (Committed, Receipt)) else Fate.FAILED,
                    result,
                )
                for value, result in zip(_asked(name, args, kwargs), answer, strict=True)
            ]
        case "delete":
            return [(value, Fate.OK, answer) for value in _asked(name, args, kwargs)]
        case "expire":
            return [(run_id, Fate.OK, True) for run_id in answer]
        case "claim_runs" | "claim_task":
            found = answer if isinstance(answer, list) else [answer]
            claims = [one.claim if isinstance(one, ClaimedRun) else one for one in found]
            return [(None, Fate.OK, claim) for claim in claims if isinstance(claim, Claim)]
        case _:
            return []
