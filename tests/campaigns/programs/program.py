"""The syntax of a random program: plain frozen data, without any of outlast.

A case is a program, what is done to its runs from outside, the faults, and the settings of the
engine. The defaults of each field are the simplest choice, so that a printed case is short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

Block = tuple["Node", ...]


@dataclass(frozen=True)
class Node:
    """One statement of a program."""


@dataclass(frozen=True)
class Step(Node):
    """A step. Its first `raises` bodies raise. `undo` is its compensation: none, one that works,
    or one that always fails."""

    seconds: float = 0
    raises: int = 0
    attempts: int = 1
    timeout: float | None = None
    at_most_once: bool = False
    queued: bool = False
    plain: bool = False
    transactional: bool = False
    """Its effect and its record are one transaction."""
    undo: str = ""
    error: str = "Oops"
    """What it raises, if it does."""


@dataclass(frozen=True)
class Map(Node):
    """A step for each of some items; the first bodies of `fails` raise."""

    items: int = 2
    seconds: float = 0
    fails: tuple[int, ...] = ()
    concurrency: int = 2
    tolerate: int = 0
    enough: int | None = None
    undo: str = ""


@dataclass(frozen=True)
class Gather(Node):
    """Branches at once: with `asyncio.gather`, or in a `TaskGroup`."""

    branches: tuple[Block, ...]
    group: bool = False


@dataclass(frozen=True)
class Timeout(Node):
    """A block in an `asyncio.timeout`; it goes on after the block when the time is over."""

    seconds: float
    body: Block


@dataclass(frozen=True)
class Child(Node):
    """A child run. `wait`: it is awaited at once ("now"), at the end of the workflow ("end"), or
    never ("never"). `taken`: its id is that of another run, so that it cannot begin."""

    body: Block
    abandon: bool = False
    own_id: bool = False
    wait: str = "now"
    taken: bool = False


@dataclass(frozen=True)
class Scope(Node):
    """A block in an `outlast.scope`."""

    body: Block


@dataclass(frozen=True)
class Loop(Node):
    """A block in an `outlast.loop`, so many times."""

    body: Block
    times: int = 2


@dataclass(frozen=True)
class Sleep(Node):
    """A durable sleep."""

    seconds: float = 1


@dataclass(frozen=True)
class Signal(Node):
    """Wait for a signal; with a timeout it goes on without it."""

    name: str = "a"
    timeout: float | None = None


@dataclass(frozen=True)
class Halt(Node):
    """Wait for a person."""


@dataclass(frozen=True)
class Ask(Node):
    """Ask a person by name; one that is late goes to another group after so many seconds."""

    late: float | None = None


@dataclass(frozen=True)
class Branch(Node):
    """A recorded decision, and what is done if it is True."""

    choice: bool
    body: Block


@dataclass(frozen=True)
class Publish(Node):
    """Publish a value."""


@dataclass(frozen=True)
class Raise(Node):
    """Workflow code raises."""


@dataclass(frozen=True)
class Try(Node):
    """A block with `except Exception` and `finally`."""

    body: Block
    handler: Block = ()
    final: Block = ()


@dataclass(frozen=True)
class Continue(Node):
    """Continue as new, until there were so many lives. The last statement of a workflow."""

    lives: int = 2


# -- what happens to it ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Act:
    """Something that is done from outside: after so many commits, or after so many seconds, or when
    everything rests. `run` is the run it is done to: 0 is the first, 1 the one that was begun next."""

    do: str
    commits: int | None = None
    seconds: float | None = None
    run: int = 0
    name: str = "a"
    dedup: str | None = None


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at a call of the store by a worker: the n-th commit, or the n-th call
    of any kind."""

    kind: str
    at: int = 1
    any_call: bool = False
    seconds: float = 0


@dataclass(frozen=True)
class Case:
    """All of it."""

    body: Block
    handler: Block | None = None
    acts: tuple[Act, ...] = ()
    faults: tuple[Fault, ...] = ()
    workers: int = 1
    snapshots: bool = False
    """Whether a snapshot is written after every second event."""
    evicts: bool = False
    """Whether a run leaves memory whenever it can."""


ACTS = (
    "signal",
    "update",
    "cancel",
    "terminate",
    "pause",
    "reopen",
    "retry",
    "fork",
    "delete",
)
FAULTS = (
    "dies before",
    "dies after",
    "answer lost",
    "busy",
    "away",
    "stands still",
    "clock back",
)
LEASE = 10.0
SECONDS = (0, 1, 4, 12)


def nodes(block: Block) -> Iterator[Node]:
    """All nodes of a block, with those inside of them, in their order."""
    for node in block:
        yield node
        for field in fields(node):
            yield from _nodes_in(getattr(node, field.name))


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield from nodes((value,))
    elif isinstance(value, tuple):
        for part in value:
            yield from _nodes_in(part)


def every_node(case: Case) -> Iterator[Node]:
    """All nodes of a case, its update handler included."""
    yield from nodes(case.body)
    yield from nodes(case.handler or ())


def workflows_of(case: Case) -> list[Block]:
    """The blocks that are a workflow each: the program, and those of its children."""
    found = [case.body]
    for node in every_node(case):
        if isinstance(node, Child) and node.body not in found:
            found.append(node.body)
    return found
