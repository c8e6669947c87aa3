"""World: two stores that get the same calls, and one clock for both.

The left store is the memory store, the specification; the right one is on trial. Each call goes to
both; their answers, errors included, and all that they hold afterwards must be the same. Only
tokens may be other numbers, in the same pattern.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from outlast.errors import OutlastError
from outlast.model.claim import Claim
from outlast.model.commit import Commit
from outlast.model.ids import root_of
from outlast.ports.queue import Queue
from outlast.ports.store import Store
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.dump import Dump, dump
from outlast.testkit.stateful.recipes import FACTS, KEYS, QUEUES, ROOTS
from outlast.testkit.value_diff import Pairing, differences

T = TypeVar("T")
MakeStore = Callable[[ManualClock], Store | AbstractContextManager[Store]]
"""Makes a new, empty store with that clock; as a context manager, if it leaves something behind."""

LEFT, RIGHT = 0, 1
FACT_NAMES = [(root, fact.hash) for root in ("", *ROOTS) for fact in FACTS]


class World(RuleBasedStateMachine):
    """The two stores, what has been handed out by them, and the comparison."""

    makers: ClassVar[tuple[MakeStore, MakeStore]]
    compared: ClassVar[int] = 0
    """How often two stores have been held against each other in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.pairing = Pairing()
        self.claims: list[tuple[Claim, Claim]] = []
        self.task_claims: list[tuple[Claim, Claim]] = []
        self.sent: list[tuple[list[Commit], list[Commit], bool]] = []
        self.names: dict[str, int] = {}
        self._exits = ExitStack()
        self._loop = asyncio.new_event_loop()
        self._exits.callback(self._loop.close)
        left, right = self.makers
        self.stores: tuple[Store, Store] = (self._made(left), self._made(right))
        self.queues: tuple[Queue, Queue] = self._loop.run_until_complete(self._open())
        self.dumps: tuple[Dump, Dump] = self.look()

    def teardown(self) -> None:
        """Close both stores and whatever their makers opened."""

        async def close() -> None:
            for store, queue in zip(self.stores, self.queues, strict=True):
                await queue.close()
                await store.close()

        self._loop.run_until_complete(close())
        self._exits.close()

    def fresh(self, kind: str) -> str:
        """A new name of its kind, the same for both stores."""
        self.names[kind] = self.names.get(kind, 0) + 1
        return f"{kind}{self.names[kind]}"

    def both(self, call: Callable[[int], Awaitable[T]]) -> tuple[T | OutlastError, ...]:
        """Do the same on both sides, and hold their answers against each other."""

        async def one(side: int) -> T | OutlastError:
            try:
                return await call(side)
            except OutlastError as error:
                return error

        async def two() -> tuple[T | OutlastError, ...]:
            return await one(LEFT), await one(RIGHT)

        answers = self._loop.run_until_complete(two())
        self._same(*answers, what="answers")
        return answers

    def done(self, call: Callable[[int], Awaitable[T]]) -> tuple[T, ...] | None:
        """The same; None if both said no."""
        answers = self.both(call)
        if any(isinstance(answer, OutlastError) for answer in answers):
            return None
        return answers  # type: ignore[return-value]

    def compare(self) -> None:
        """ClaimOnCreate all that the two stores show against each other."""
        World.compared += 1
        self.dumps = self.look()
        self._same(*self.dumps, what="stores")
        assert self.pairing.grown(), "a new token is not greater than all before it"

    def look(self) -> tuple[Dump, Dump]:
        """What both stores hold."""

        async def one(store: Store, queue: Queue) -> Dump:
            found = await dump(store, queues=QUEUES, facts=FACT_NAMES, keys=KEYS, listed=False)
            for name in QUEUES:
                found.keys["len", name] = str(await queue.len(name))
            return found

        async def two() -> tuple[Dump, Dump]:
            left, right = zip(self.stores, self.queues, strict=True)
            return await one(*left), await one(*right)

        return self._loop.run_until_complete(two())

    def token(self, word: str, run_id: str) -> tuple[int | None, int | None]:
        """The token that a word of a recipe means, on each side."""
        if word == "none":
            return None, None
        if word == "bogus":
            return 10**6, 10**6
        now = [seen.runs[run_id].run.token if run_id in seen.runs else 0 for seen in self.dumps]
        if word == "stale":
            for pair in self.claims:
                if pair[LEFT].run_id == run_id and pair[LEFT].token != now[LEFT]:
                    return pair[LEFT].token, pair[RIGHT].token
            return now[LEFT] + 10**6, now[RIGHT] + 10**6
        return now[LEFT] or None, now[RIGHT] or None

    def tree(self, run_id: str) -> list[str]:
        """The runs that live in the same tree."""
        return [id for id in self.dumps[LEFT].runs if root_of(id) == root_of(run_id)]

    def _same(self, left: object, right: object, *, what: str) -> None:
        found = list(differences(left, right, self.pairing))
        assert not found, f"the {what} differ:\n  " + "\n  ".join(found[:10])

    def _made(self, make: MakeStore) -> Store:
        made: Any = make(self.clock)
        return made if isinstance(made, Store) else self._exits.enter_context(made)

    async def _open(self) -> tuple[Queue, Queue]:
        for store in self.stores:
            await store.open()
        left, right = (store.queue() for store in self.stores)
        await left.open()
        await right.open()
        return left, right
