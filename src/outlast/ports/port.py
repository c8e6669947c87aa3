"""Port: what stores and queues share. A port is opened as a context, and checks the arguments of each call.

A port declares beside each method what its arguments must satisfy::

    @checks(run_id=check_run_id, limit=check_limit)
    async def inbox(self, run_id: str, *, limit: int = 1000, …) -> list[Item]: …

An adapter overrides `inbox` and gets valid arguments only: `Port` puts the checks before the override when the
adapter's class is defined. An override of an override is not checked again: it calls the first one.

`Capability` and `Durability` say what a store can do beyond the core, and what its acknowledgement survives.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Awaitable, Callable
from enum import IntEnum, StrEnum
from functools import partial, wraps
from types import TracebackType
from typing import Any, Self, TypeVar

from outlast.model.claim import check_ttl
from outlast.model.ids import check_id, check_name
from outlast.model.query import check_limit
from outlast.model.times import check_moment

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
Check = Callable[[Any], object]
"""Raises a `UsageError` for a value that may not be passed."""

check_run_id = partial(check_id, child=True)


def check_owner(owner: object) -> None:
    """Raise for a text that cannot name an owner."""
    check_name(owner, "owner")


def check_time(what: str) -> Check:
    """A check that the parameter `what` is a time with a zone, or None."""
    return lambda moment: None if moment is None else check_moment(moment, what)


def check_each(check: Check) -> Check:
    """A check of every element of a collection."""

    def check_all(values: Any) -> None:
        for value in values:
            check(value)

    return check_all


def check_page(limit: int | None) -> None:
    """Raise for a limit that is out of range. None is no limit."""
    if limit is not None:
        check_limit(limit)


def checks(call: Callable[..., object] | None = None, **by_name: Check) -> Callable[[F], F]:
    """Declare what a call of the method must satisfy: parameter by parameter, or with `call` all at once.
    `call` gets the arguments of the method, beginning with `self`. Defaults are not checked."""

    def declare(method: F) -> F:
        code = method.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        positions = [(names.index(name) - 1, name, check) for name, check in by_name.items()]
        method.__checks__ = call, positions  # type: ignore[attr-defined]
        return method

    return declare


def _checked(method: F, declared: tuple[Callable[..., object] | None, list[Any]]) -> F:
    check_call, positions = declared

    @wraps(method)
    async def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        for position, name, check in positions:
            if position < len(args):
                check(args[position])
            elif name in kwargs:
                check(kwargs[name])
        if check_call is not None:
            check_call(self, *args, **kwargs)
        return await method(self, *args, **kwargs)

    return call  # type: ignore[return-value]


class Port(ABC):  # noqa: B024 (its subclasses have abstract methods)
    """The base of `Store` and `Queue`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in list(vars(cls).items()):
            declared = getattr(getattr(super(cls, cls), name, None), "__checks__", None)
            if declared is not None and not hasattr(method, "__checks__"):
                setattr(cls, name, _checked(method, declared))

    async def open(self) -> None:
        """Connect. Opening twice does nothing."""

    async def close(self) -> None:
        """Disconnect. Closing twice is fine."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


__all__ = [
    "Port",
    "check_each",
    "check_limit",
    "check_owner",
    "check_page",
    "check_run_id",
    "check_time",
    "check_ttl",
    "checks",
]


class Capability(StrEnum):
    """A declared ability. What a store does not declare must raise `Unsupported`; the conformance
    kit checks both sides."""

    FIND = "find"  # find, run_ids, counts: list and count runs
    INBOX = "inbox"  # send, inbox, and the parts of a commit that consume and send
    CHILDREN = "children"  # starts of a commit
    TASKS = "tasks"  # tasks of a commit, claim_task, find_available_tasks
    TIMERS = "timers"  # timers of a commit, timers, due_timers
    ENTRIES = "entries"  # entries of a commit, entries
    ACTIVITIES = "activities"  # activities of a commit, find_activity, activities
    SNAPSHOTS = "snapshots"  # snapshot of a commit, find_snapshot, drop_snapshot, snapshot_ids
    FACTS = "facts"  # facts of a commit, find_fact, put_fact, drop_fact
    KEYS = "keys"  # remember, recall: idempotency keys
    DELETE = "delete"  # delete, and a commit that replaces a life
    RETENTION = "retention"  # expire: remove what ended long ago
    ATOMIC_BATCH = "atomic_batch"  # commit(atomic=True) over several runs
    OWNER_GONE = "owner_gone"  # detect a crashed owner before its lease expires
    WORKERS = "workers"  # heartbeat, leave, workers: which processes are alive
    MOVE = "move"  # contents, skip_tokens: what a transfer needs


ALL_CAPABILITIES = frozenset(Capability)

COMMIT_CAPABILITIES = ALL_CAPABILITIES - {
    Capability.FIND,
    Capability.KEYS,
    Capability.RETENTION,
    Capability.OWNER_GONE,
    Capability.WORKERS,
    Capability.MOVE,
}
"""Those that a part of a commit may need."""


class Durability(IntEnum):
    """What an acknowledged commit survives."""

    NOTHING = 0  # memory
    PROCESS_CRASH = 1  # the last second or two may be lost when the power fails
    POWER_LOSS = 2  # the node may lose power at any time
    NODE_LOSS = 3  # the node may be lost
