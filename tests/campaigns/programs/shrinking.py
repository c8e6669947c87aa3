"""Shrinking: the smallest case that fails in the same way.

Parts of the case are left out, replaced by what is inside of them, and set to their simplest value,
one after the other, as long as it still fails. (Hypothesis does the same for what it draws itself.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from tests.campaigns.programs.program import Case, Node

MOST_TRIES = 500


def smallest(case: Case, fails: Callable[[Case], bool], tries: int = MOST_TRIES) -> Case:
    """The smallest case found for which `fails` is true, beginning with one for which it is."""
    known = {case}
    going = True
    while going:
        going = False
        for candidate in _simpler(case):
            if candidate in known:
                continue
            known.add(candidate)
            tries -= 1
            if tries < 0:
                return case
            if fails(candidate):
                case, going = candidate, True
                break
    return case


def _simpler(value: Any) -> Iterator[Any]:
    """The same with one part less, or with one part simpler."""
    if isinstance(value, tuple):
        for i in range(len(value)):
            yield value[:i] + value[i + 1 :]
        for i, part in enumerate(value):
            for inside in _inside(part):
                yield value[:i] + inside + value[i + 1 :]
            for simpler in _simpler(part):
                yield (*value[:i], simpler, *value[i + 1 :])
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            own = getattr(value, field.name)
            if field.default is not MISSING and own != field.default:
                yield replace(value, **{field.name: field.default})
            for simpler in _simpler(own):
                yield replace(value, **{field.name: simpler})
    elif isinstance(value, int) and not isinstance(value, bool) and value > 1:
        yield from {value // 2, value - 1}


def _inside(part: Any) -> Iterator[tuple[Any, ...]]:
    """The blocks of a statement, each in its place."""
    if isinstance(part, Node):
        for field in fields(part):
            block = getattr(part, field.name)
            for found in (block, *block) if isinstance(block, tuple) else ():
                if isinstance(found, tuple) and all(isinstance(one, Node) for one in found):
                    yield found
