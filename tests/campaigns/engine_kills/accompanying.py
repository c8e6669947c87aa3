"""What the client of a run does: start it, talk to it, and hear how it ends, whatever the store does
meanwhile. It knows no more than a client can: what was not answered is asked for again. A ledger has
what it asked and was told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

import outlast
from outlast.errors import NotFound, RunCancelled, RunClosed, RunFailed, TryAgain, UpdateFailed
from tests.campaigns.engine_kills.ledgers import Ledger, Told
from tests.campaigns.engine_kills.workflows import KINDS, SIGNALS, Kind, kind_of, listens

PAUSE = 0.05

Talk = Callable[["Companion", str], Awaitable[None]]


async def say_words(companion: Companion, run_id: str) -> None:
    """Send one signal after the other."""
    for word in range(SIGNALS):
        await companion.say(run_id, word)
        await asyncio.sleep(0.01 * random.random())  # talk is not always at once


class Companion:
    """A client who accompanies runs. `talks` says what to do with a workflow that waits for it; with
    `here=False` runs are left to workers elsewhere."""

    def __init__(
        self,
        app: outlast.App,
        ledger: Ledger,
        *,
        kinds: Mapping[str, Kind] = KINDS,
        talks: Mapping[str, Talk] | None = None,
        here: bool = True,
    ) -> None:
        self.app = app
        self._ledger = ledger
        self._kinds = kinds
        self._talks = {listens.name: say_words} if talks is None else talks
        self._here = here

    async def accompany(self, run_id: str) -> None:
        """One run, from its start to its end."""
        kind, number = kind_of(run_id, self._kinds)
        workflow, here = kind.workflow, self._here
        try:
            await self._surely(
                "starting",
                run_id,
                0,
                lambda: self.app.start(workflow(number), id=run_id, here=here),
            )
            self.note("started", run_id)
            if workflow.name in self._talks:
                await self._talks[workflow.name](self, run_id)
            value = await self._surely("", run_id, 0, lambda: self.app.get(run_id).result())
        except RunCancelled as end:
            self.note("cancelled", run_id, value=end.error)
        except RunFailed as failure:
            self.note("failed", run_id, value=failure.error)
        except NotFound:
            self.note("missing", run_id)
        else:
            self.note("result", run_id, value=value)

    async def say(self, run_id: str, word: int) -> None:
        """Send a word, once, until it is known to be there or refused."""

        async def send() -> None:
            await self.app.get(run_id).signal("word", word, dedup=f"word-{word}")

        try:
            await self._surely("sending", run_id, word, send)
        except RunClosed:
            self.note("refused", run_id, word)
        else:
            self.note("sent", run_id, word)

    async def ask(self, run_id: str, name: str, number: int) -> None:
        """Ask a run for something, once, until it has answered."""

        async def ask() -> object:
            return await self.app.get(run_id).update(name, number, int, dedup=str(number))

        try:
            answer = await self._surely("asking", run_id, number, ask)
        except UpdateFailed as failure:
            self.note("unanswered", run_id, number, value=str(failure))
        else:
            self.note("answered", run_id, number, value=answer)

    async def cancel(self, run_id: str, reason: str) -> None:
        """Cancel a run; one that has ended cannot be."""

        async def cancel() -> None:
            await self.app.get(run_id).cancel(reason)

        try:
            await self._surely("cancelling", run_id, 0, cancel)
        except RunClosed:
            self.note("refused", run_id)

    async def _surely(
        self, what: str, run_id: str, number: int, ask: Callable[[], Awaitable[object]]
    ) -> object:
        """Ask until there is an answer."""
        while True:
            if what:
                self.note(what, run_id, number)
            try:
                return await ask()
            except TryAgain:
                await asyncio.sleep(PAUSE)

    def note(self, what: str, run_id: str, number: int = 0, *, value: object = None) -> None:
        """A line in the ledger."""
        self._ledger.write(Told(what, self._ledger.life, run_id, number, value))
