"""What a step costs, in things that can be counted, so that a slowdown cannot slip in.

No clock is read here: commits, calls of the store, statements, round trips, functions called and blocks
of memory allocated do not depend on the machine, and hardly on its load. `MOST` is what they were when
somebody last looked, and a little more. Whoever makes a step dearer for a good reason says so by changing the number; whoever makes it
cheaper lowers it. How many seconds that comes to is what `./dev bench` measures.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import outlast
from tests.costs.counting import PLACES, CountedStore, allocations, function_calls

STEPS = 10
AT_ONCE = 50
FEW = 2  # counting blocks is slow
TRIES = 3  # the least counts: what an app does besides, it does by the clock

COMMITS = {"together": 0.05, "alone": 1.1}  # of the journal, not of runs: those have 11 each
OTHERS = 0.01  # who waits for a result is told by the driver of the run
MOST: dict[tuple[str, str], dict[str, float]] = {
    ("memory", "together"): {"functions": 360},
    ("memory", "alone"): {"functions": 472},
    ("sqlite", "together"): {"transactions": 0.05, "statements": 4.3},
    ("sqlite", "alone"): {"transactions": 1.15, "statements": 7.0},
    ("postgres", "together"): {"round trips": 0.06},
    ("postgres", "alone"): {"round trips": 1.45},
    ("redis", "together"): {"round trips": 0.06},
    ("redis", "alone"): {"round trips": 1.45},
}
"""For each step, with a tenth of what a run needs to begin and to end."""

ALLOCATED = {
    ("memory", "alone"): 435,
    ("sqlite", "together"): 455,  # two at once: a transaction for a step or two
}
"""Blocks of memory for each step. Between Python 3.11 and 3.13 they differ by 3 %, from one time to the
next by 4 %, and on SQLite they are 5 % fewer if the disk is so slow that a thread writes."""


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
    run = await app.start(ten_steps(1))
    assert await run.result() == 1 + STEPS


async def _do_many(app: outlast.App, how: str, runs: int) -> None:
    if how == "together":
        await asyncio.gather(*(_do(app) for _ in range(runs)))
    else:
        for _ in range(runs):
            await _do(app)


@pytest.mark.parametrize("how", ["together", "alone"])
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=pytest.mark.server if place in ("postgres", "redis") else ())
        for place in PLACES
    ],
)
async def test_a_step_costs_no_more_than_it_did(
    place: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Store calls, statements and round trips a step, a run at a time and fifty at once."""
    most: dict[str, float] = {"commits": COMMITS[how], "other calls": OTHERS, **MOST[place, how]}
    runs = AT_ONCE if how == "together" else STEPS
    found, dearer = dict[str, float](), list(most)
    async with PLACES[place](tmp_path, monkeypatch) as (inner, sent):
        store = CountedStore(inner)
        async with store, outlast.App(store, workflows=[ten_steps]) as app:
            await asyncio.gather(*(_do(app) for _ in range(AT_ONCE)))  # connected, compiled, warm
            for _ in range(TRIES):
                store.calls.clear()
                sent.clear()
                with function_calls() as here:
                    await _do_many(app, how, runs)
                asked, below = Counter(store.calls), Counter(sent)  # what follows is not counted
                commits, others = asked.pop("commit"), asked.total()
                counted = {"commits": commits, "other calls": others, **below, **here}
                found = {name: counted[name] / (runs * STEPS) for name in most}
                dearer = [name for name, cost in found.items() if cost > most[name]]
                if not dearer:
                    break
            revisions = {run.revision async for run in app.client.find()}
    assert revisions == {STEPS + 1}, "a commit for each step, and one for the end of the run"
    assert not dearer, f"a step costs {found}, and at most {most} is allowed"


@pytest.mark.parametrize("place, how", ALLOCATED)
async def test_a_step_allocates_no_more_than_it_did(
    place: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of memory a step, kept or not, a run at a time and several at once."""
    async with (
        PLACES[place](tmp_path, monkeypatch) as (store, _),
        store,
        outlast.App(store, workflows=[ten_steps]) as app,
    ):
        await _do_many(app, "together", AT_ONCE)
        found, most = float("inf"), ALLOCATED[place, how]
        for _ in range(TRIES):
            with allocations() as counted:
                await _do_many(app, how, FEW)
            found = min(found, counted["allocations"] / (FEW * STEPS))
            if found <= most:
                break
    assert found > most / 3, f"{found} a step is far below {most}: lower the number"
    assert found <= most, f"a step allocates {found} blocks, and at most {most} are allowed"


async def test_what_is_freed_at_once_is_counted_too() -> None:
    """Three thousand objects that nobody keeps are as many allocations, though none is left."""

    def make() -> tuple[object, object, object]:
        return object(), object(), object()

    with allocations() as nothing:
        pass
    with allocations() as something:
        for _ in range(1_000):
            make()
    assert nothing["allocations"] < 100
    assert 3_000 <= something["allocations"] < 10_000
