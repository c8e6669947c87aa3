"""How cases are drawn: one generator over a source of choices.

A campaign draws from a seed, Hypothesis from its own choices, which it can shrink. In both, 0 is the
simplest choice: a plain step, nothing from outside, no fault.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st

from tests.campaigns.programs.program import (
    Act,
    Ask,
    Block,
    Branch,
    Case,
    Child,
    Continue,
    Fault,
    Gather,
    Halt,
    Loop,
    Map,
    Node,
    Publish,
    Raise,
    Scope,
    Signal,
    Sleep,
    Step,
    Timeout,
    Try,
)

T = TypeVar("T")


class Choices(Protocol):
    """Where decisions come from."""

    def below(self, count: int) -> int:
        """A whole number from 0 on, less than `count`."""
        ...


class Drawn:
    """Choices of a random generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        return self._random.randrange(count)


class _Hypothesis:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def below(self, count: int) -> int:
        return self._draw(st.integers(0, count - 1))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Cases, for Hypothesis."""
    return Generator(_Hypothesis(draw)).case()


def case_of(seed: int) -> Case:
    """The case of a seed."""
    return Generator(Drawn(seed)).case()


SIMPLE = ["step"] * 7 + ["map"] * 2 + ["sleep", "signal", "raise", "publish", "halt", "ask"]
NESTED = ["gather"] * 3 + ["child"] * 4 + ["try"] * 2 + ["loop"] * 2
NESTED += ["scope", "timeout", "branch"]
DEEPEST = 3
ACTS = ["signal"] * 2 + ["cancel"] * 3 + ["reopen"] * 2 + ["update"] * 2 + ["retry"] * 3
ACTS += ["terminate", "pause", "fork", "delete", "answer"]
FAULTS = ("dies before", "dies after", "answer lost", "busy", "away", "stands still", "clock back")


class Generator:
    """Draws one case."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._left = 9
        """How many statements there may still be."""

    def case(self) -> Case:
        """A case, simplest first."""
        # The first one strikes early, so that nearly every program meets it.
        latest = (4, *(14,) * self._pick((0, 0, 0, 1, 1, 2)))
        faults = tuple(map(self._fault, latest))
        acts = tuple(self._act() for _ in range(self._pick((0, 0, 1, 1, 2, 3))))
        handler: Block | None = None
        if any(act.do == "update" for act in acts):
            handler = (self._step(),) if self._chance(2) else ()
        body = self._block(0, 5)
        if self._chance(6):
            body += (Continue(2 + self._choices.below(2)),)
        return Case(
            body=body,
            handler=handler,
            acts=acts,
            faults=faults,
            workers=1 + self._chance(2),
            snapshots=self._chance(2),
            evicts=self._chance(3),
        )

    def _pick(self, options: Sequence[T]) -> T:
        return options[self._choices.below(len(options))]

    def _chance(self, one_in: int) -> bool:
        return self._choices.below(one_in) == one_in - 1

    # -- what is done -------------------------------------------------------------------------

    def _block(self, depth: int, most: int) -> Block:
        found: list[Node] = []
        for _ in range(1 + self._choices.below(most)):
            if self._left > 0:
                self._left -= 1
                found.append(self._node(depth))
        return tuple(found)

    def _node(self, depth: int) -> Node:
        kinds = SIMPLE if depth >= DEEPEST or self._left < 1 else SIMPLE + NESTED
        match self._pick(kinds):
            case "step":
                return self._step()
            case "map":
                return self._map()
            case "sleep":
                return Sleep(self._pick((1, 4, 12)))
            case "signal":
                return Signal(self._pick(("a", "a", "b")), self._pick((None, None, 4)))
            case "publish":
                return Publish()
            case "halt":
                return Halt()
            case "ask":
                return Ask(self._pick((None, None, 4)))
            case "gather":
                count = 2 + self._chance(3)
                branches = tuple(self._block(depth + 1, 2) for _ in range(count))
                return Gather(branches, group=self._chance(3))
            case "child":
                return self._child(depth)
            case "try":
                parts = (self._block(depth + 1, 2), self._maybe(depth), self._maybe(depth))
                return Try(*parts)
            case "loop":
                return Loop(self._block(depth + 1, 2), 2 + self._choices.below(3))
            case "scope":
                return Scope(self._block(depth + 1, 3))
            case "timeout":
                return Timeout(self._pick((3, 8)), self._block(depth + 1, 2))
            case "branch":
                return Branch(self._chance(2), self._block(depth + 1, 2))
        return Raise()

    def _maybe(self, depth: int) -> Block:
        return self._block(depth + 1, 1) if self._chance(2) else ()

    def _step(self) -> Step:
        seconds = self._pick((0, 0, 1, 1, 4, 12))
        raises = self._pick((0, 0, 0, 1, 2))
        at_most_once = self._chance(6)
        queued, plain = self._chance(6), self._chance(4) and not seconds
        return Step(
            seconds=seconds,
            raises=raises,
            attempts=1 if at_most_once else self._pick((1, 1, 2, 3)),
            timeout=self._pick((None,) * 7 + (3,)),
            at_most_once=at_most_once,
            queued=queued,
            plain=plain,
            transactional=self._chance(3) and not (queued or plain),
            undo=self._pick(("", "ok", "ok", "fails")),
            error=self._pick(("Oops",) * 8 + ("GeneratorExit", "KeyboardInterrupt")),
        )

    def _map(self) -> Map:
        items = 1 + self._choices.below(4)
        fails = (self._choices.below(items),) if self._chance(4) else ()
        return Map(
            items=items,
            seconds=self._pick((0, 1, 4)),
            fails=fails,
            concurrency=1 + self._choices.below(3),
            tolerate=int(self._chance(3)),
            enough=1 if self._chance(6) else None,
            undo=self._pick(("", "", "ok", "fails")),
        )

    def _child(self, depth: int) -> Child:
        body = self._block(depth + 1, 3)
        if self._chance(10):
            body += (Continue(2),)
        return Child(
            body,
            abandon=self._chance(3),
            own_id=self._chance(4),
            wait=self._pick(("now", "now", "end", "never")),
            taken=self._chance(12),
        )

    # -- what happens to it -------------------------------------------------------------------

    def _act(self) -> Act:
        do = self._pick(ACTS)
        when = self._choices.below(3)
        if do in ("retry", "fork"):
            when = 2 if self._chance(2) else when
        return Act(
            do,
            commits=1 + self._choices.below(12) if when == 0 else None,
            seconds=self._pick((1, 2, 5, 9, 14)) if when == 1 else None,
            run=self._pick((0, 0, 0, 0, 1, 2)),
            name=self._pick(("a", "b")),
            dedup=self._pick((None, None, "k")) if do in ("signal", "update") else None,
        )

    def _fault(self, latest: int) -> Fault:
        kind = self._pick(FAULTS)
        seconds: float = 0
        if kind in ("busy", "away"):
            seconds = self._pick((1, 3, 5, 12, 20))
        elif kind == "stands still":
            seconds = self._pick((12, 25))
        any_call = self._chance(4)
        at = 1 + self._choices.below(2 * latest if any_call else latest)
        return Fault(kind, at, any_call, seconds)
