"""The ambiguity injector: a store whose every call can go wrong in every way that networks know.

::

    store = FaultyStore(MemoryStore(), Nth(7, Fault.LOST_ANSWER))

The seventh call of the port is then carried out, and its caller gets `UnknownOutcome`. To try
every call of a scenario with every fault, run it once with `Never`, count `store.sites`, and run it
again for each place and kind::

    for place, fault in sweep(len(store.sites)):
        ...

A client survives if it repeats what may be repeated and settles the rest by `Commit.id`; `persist`
is that client for commits, in ten lines.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from enum import StrEnum
from itertools import product
from typing import Any, NamedTuple, Protocol, TypeVar

from outlast.errors import Busy, OutlastError, TryAgain, Unavailable, UnknownOutcome
from outlast.model.commit import Commit, Committed, Creation
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.testkit.wrapped_store import WrappedStore

T = TypeVar("T")


class Fault(StrEnum):
    """What can become of a call."""

    REFUSED = "refused"  # the call is not carried out: Busy
    AWAY = "away"  # nothing is done, because the store cannot be reached: Unavailable
    LOST_REQUEST = "lost request"  # the call is not carried out: UnknownOutcome
    LOST_ANSWER = "lost answer"  # the call is carried out: UnknownOutcome
    DUPLICATED = "duplicated"  # it is done twice; the caller hears the second answer
    DELAYED = "delayed"  # others go first, and time passes
    CANCELLED_BEFORE = "cancelled before"  # the caller is cancelled, and nothing was done
    CANCELLED_AFTER = "cancelled after"  # the caller is cancelled, and it was done


class Site(NamedTuple):
    """One call of the port: its number, from 1 on, and which primitive."""

    number: int
    name: str


class Plan(Protocol):
    """Says which call goes wrong, and how."""

    def fault(self, site: Site) -> Fault | None:
        """The fault for this call, or None to let it be."""
        ...


class Never:
    """Nothing goes wrong: to count the calls, and to see how it should end."""

    def fault(self, site: Site) -> Fault | None:
        return None


class Nth:
    """One call goes wrong: the n-th."""

    def __init__(self, number: int, fault: Fault) -> None:
        self.number = number
        self.kind = fault

    def fault(self, site: Site) -> Fault | None:
        return self.kind if site.number == self.number else None

    def __repr__(self) -> str:
        return f"Nth({self.number}, {self.kind})"


class Random:
    """Each call goes wrong with some probability for each kind. The seed decides, so that a run
    can be repeated as long as its calls come in the same order."""

    def __init__(self, seed: int, rates: Mapping[Fault, float]) -> None:
        self._random = random.Random(seed)
        self._rates = dict(rates)
        if sum(self._rates.values()) > 1:
            raise ValueError("the rates add up to more than 1")

    def fault(self, site: Site) -> Fault | None:
        dice = self._random.random()
        for fault, rate in self._rates.items():
            if dice < rate:
                return fault
            dice -= rate
        return None


class Outage:
    """The store cannot be reached for a time, or what it is asked to write is locked. `but` names the
    calls that go through all the same: ``but={"renew"}`` is a lease that is renewed on a connection
    of its own, while the others are lost. `only` names those that are concerned, if not all are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self._fault = Fault.AWAY
        self._only: Collection[str] = ()
        self._but: Collection[str] = ()

    def begin(
        self,
        seconds: float,
        fault: Fault = Fault.AWAY,
        *,
        only: Collection[str] = (),
        but: Collection[str] = (),
    ) -> None:
        """From now on, for so long."""
        self._until = self._clock.monotonic() + seconds
        self._fault, self._only, self._but = fault, only, but

    @property
    def lasts(self) -> bool:
        """Whether it is not over."""
        return self._clock.monotonic() < self._until

    def fault(self, site: Site) -> Fault | None:
        concerned = not self._only or site.name in self._only
        return self._fault if self.lasts and concerned and site.name not in self._but else None


class FaultyStore(WrappedStore):
    """A store around another in which calls go wrong as planned. `sites` are the calls so far and
    `faults` what went wrong. `pause` is what happens during a delay."""

    def __init__(
        self,
        inner: Store,
        plan: Plan,
        *,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(inner)
        self.plan = plan
        self.sites: list[Site] = []
        self.faults: list[tuple[Site, Fault]] = []
        self._pause = pause or let_others_go_first

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        site = Site(len(self.sites) + 1, name)
        self.sites.append(site)
        fault = self.plan.fault(site)
        if fault is not None:
            self.faults.append((site, fault))
        match fault:
            case Fault.REFUSED:
                raise Busy(f"{name} was refused by the plan; nothing was written")
            case Fault.AWAY:
                raise Unavailable(f"{name} did not reach the store; nothing was written")
            case Fault.LOST_REQUEST:
                raise UnknownOutcome(f"{name} may or may not have happened")
            case Fault.LOST_ANSWER:
                await call()
                raise UnknownOutcome(f"{name} may or may not have happened")
            case Fault.DUPLICATED:
                await call()
            case Fault.DELAYED:
                await self._pause()
            case Fault.CANCELLED_BEFORE:
                raise asyncio.CancelledError
            case Fault.CANCELLED_AFTER:
                await call()
                raise asyncio.CancelledError
        return await call()


def sweep(calls: int) -> Iterator[tuple[int, Fault]]:
    """Every call with every fault."""
    return product(range(1, calls + 1), Fault)


async def let_others_go_first() -> None:
    """Give everything else on the loop several turns."""
    for _ in range(5):
        await asyncio.sleep(0)


async def persist(store: Store, commit: Commit, *, tries: int = 20) -> Committed:
    """Make a commit durable whatever happens in between: after an unknown outcome or a cancelled
    call, read `Commit.id` back, and repeat the very same commit if it did not happen."""
    doubt = False
    for _ in range(tries):
        try:
            if doubt and (committed := await _settled(store, commit)) is not None:
                return committed
            outcome = (await store.commit([commit]))[0]
        except (TryAgain, asyncio.CancelledError):
            _unless_meant()
            doubt = True
            continue
        if isinstance(outcome, Committed):
            return outcome
        if not isinstance(outcome, Busy):
            raise outcome
    raise UnknownOutcome(f"commit {commit.id!r} could not be settled in {tries} tries")


async def again(call: Callable[[], Awaitable[T]], *, tries: int = 20) -> T:
    """The answer of a call that may be repeated at will."""
    lost: OutlastError | asyncio.CancelledError | None = None
    for _ in range(tries):
        try:
            return await call()
        except (TryAgain, asyncio.CancelledError) as error:
            _unless_meant()
            lost = error
    raise UnknownOutcome(f"no answer in {tries} tries") from lost


def _unless_meant() -> None:
    """A cancellation by the plan is survived; one of this very task is not ours to swallow."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _settled(store: Store, commit: Commit) -> Committed | None:
    run = await store.find_one(commit.run_id)
    if run is None:
        return None
    # Others may have written to a life since this commit began it: its uid is proof as well.
    begins = commit.create is not None and commit.creation is not Creation.UPSERT
    was_created = begins and commit.create is not None and run.uid == commit.create.uid
    if run.commit_id != commit.id and not was_created:
        return None
    return Committed(
        run_id=run.id,
        uid=run.uid,
        sequence=run.sequence,
        revision=run.revision,
        token=run.token,
        again=True,
    )
