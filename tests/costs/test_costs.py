"""What a step costs, in things that can be counted, so that a slowdown cannot slip in.

No clock is read here: commits, calls of the store, statements and round trips do not depend on the
machine, and hardly on its load. `MOST` is what they were when somebody last looked, and a little
more. Whoever makes a step dearer for a good reason says so by changing the number; whoever makes it
cheaper lowers it. How many seconds that comes to is what `./dev bench` measures.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import outlast
from tests.costs.counting import PLACES, CountedStore, function_calls

STEPS = 10
AT_ONCE = 50

COMMITS = {"together": 0.05, "alone": 1.1}  # of the journal, not of runs: those have 11 each
OTHERS = 0.11  # a look at the result of each run
MOST: dict[tuple[str, str], dict[str, float]] = {
    ("memory", "together"): {"functions": 490},
    ("memory", "alone"): {"functions": 600},
    ("sqlite", "together"): {"transactions": 0.05, "statements": 4.3},
    ("sqlite", "alone"): {"transactions": 1.15, "statements": 7.0},
    ("postgres", "together"): {"round trips": 0.06},
    ("postgres", "alone"): {"round trips": 1.45},
    ("redis", "together"): {"round trips": 0.06},
    ("redis", "alone"): {"round trips": 1.45},
}
"""For each step, with a tenth of what a run needs to begin and to end."""


@outlast.step
async def increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


@outlast.workflow
async def ten_steps(number: int) -> int:
    """Ten steps in a row."""
    for _ in range(STEPS):
        number = await increase(number)
    return number


async def _do(app: outlast.App) -> None:
    run = await app.start(ten_steps, 1)
    assert await run.result() == 1 + STEPS


@pytest.mark.parametrize("how", ["together", "alone"])
@pytest.mark.parametrize("place", PLACES)
async def test_a_step_costs_no_more_than_it_did(
    place: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Store calls, statements and round trips a step, a run at a time and fifty at once."""
    async with PLACES[place](tmp_path, monkeypatch) as (inner, sent):
        store = CountedStore(inner)
        async with store, outlast.App(store, workflows=[ten_steps]) as app:
            await asyncio.gather(*(_do(app) for _ in range(AT_ONCE)))  # connected, compiled, warm
            store.calls.clear()
            sent.clear()
            runs = AT_ONCE if how == "together" else STEPS
            with function_calls() as here:
                if how == "together":
                    await asyncio.gather(*(_do(app) for _ in range(runs)))
                else:
                    for _ in range(runs):
                        await _do(app)
            asked, below = Counter(store.calls), Counter(sent)  # what follows is not counted
            revisions = {run.revision async for run in app.find()}
    counted = {"commits": asked.pop("commit"), "other calls": asked.total(), **below, **here}
    most: dict[str, float] = {"commits": COMMITS[how], "other calls": OTHERS, **MOST[place, how]}
    found = {name: counted[name] / (runs * STEPS) for name in most}
    dearer = [name for name, cost in found.items() if cost > most[name]]
    assert revisions == {STEPS + 1}, "a commit for each step, and one for the end of the run"
    assert not dearer, f"a step costs {found}, and at most {most} is allowed"
