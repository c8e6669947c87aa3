"""Shrinking: the smallest case that fails in the same way.

What is made smaller are the choices that the case was drawn from, as Hypothesis does it: left out,
set to 0, made less. Whatever comes out is a case that the generator can draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.programs.program import Case
from tests.programs.strategies import Drawn, Generator, Given

MOST_TRIES = 600


def smallest(seed: int, fails: Callable[[Case], bool], tries: int = MOST_TRIES) -> Case:
    """The smallest case found for which `fails` is true, beginning with that of a seed."""
    drawn = Drawn(seed)
    Generator(drawn).case()
    choices = drawn.taken
    case = Generator(Given(choices)).case()
    known: set[Case] = {case}
    while tries > 0:
        for fewer in _smaller(choices):
            candidate = Generator(Given(fewer)).case()
            if candidate in known:
                continue
            known.add(candidate)
            tries -= 1
            if fails(candidate):
                choices, case = fewer, candidate
                break
            if tries <= 0:
                break
        else:
            break
    return case


def _smaller(choices: list[int]) -> Iterator[list[int]]:
    for size in (32, 16, 8, 4, 2, 1):
        for start in range(0, len(choices), size):
            yield choices[:start] + choices[start + size :]
    for size in (8, 4, 1):
        for start in range(0, len(choices), size):
            part = choices[start : start + size]
            if any(part):
                yield choices[:start] + [0] * len(part) + choices[start + size :]
    for place, choice in enumerate(choices):
        for less in range(1, choice):
            yield [*choices[:place], less, *choices[place + 1 :]]
