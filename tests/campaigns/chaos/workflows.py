"""What runs under chaos: the kinds of `tests.campaigns.engine_kills`, and those that need other processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
from typing import Any

import outlast
from outlast.decorators import Step
from outlast.model import Status
from tests.campaigns.engine_kills.accompanying import Companion, Talk, say_words
from tests.campaigns.engine_kills.ledgers import effect
from tests.campaigns.engine_kills.workflows import KINDS, RETRY, Kind, add, listens

UPDATES = 3
RELAYS = 3
LEASE = float(os.environ.get("CHAOS_LEASE", "2.0"))
GRIP = 1.6 * LEASE
REASON = "changed its mind"


@outlast.step(queue="far")
async def far_add(left: int, right: int) -> int:
    with effect():
        await asyncio.sleep(0.005)  # work
        return left + right


@outlast.step(queue="far", retry=RETRY)
async def far_stumble(number: int) -> int:
    with effect():
        if outlast.step_info().attempt < 3:
            raise ConnectionError("not yet")
        return 2 * number


@outlast.step(queue="far", at_most_once=True)
async def far_once(number: int) -> int:
    with effect():
        await asyncio.sleep(0.01)  # work
        return number


@outlast.step(at_most_once=True)
async def once(number: int) -> int:
    with effect():
        await asyncio.sleep(0.01)  # work
        return number


@outlast.step
async def grip(number: int) -> int:
    """Holds the interpreter past the lease, the first time: nothing else runs in the process."""
    with effect():
        if outlast.step_info().attempt == 1:
            ctypes.PyDLL(None).usleep(int(GRIP * 1e6))
        return number


@outlast.workflow
async def remote(number: int) -> int:
    left, right = await asyncio.gather(far_add(number, 1), far_add(number, 2))
    return await add(left, right)


@outlast.workflow
async def far_flaky(number: int) -> int:
    return await far_stumble(number)


@outlast.workflow
async def careful(number: int) -> int:
    return await once(number)


@outlast.workflow
async def far_careful(number: int) -> int:
    return await far_once(number)


@outlast.workflow
async def answers(number: int) -> int:
    """Each update adds to the sum, by a step, and is answered with it."""
    total = number

    @outlast.on_update
    async def raise_by(by: int) -> int:
        nonlocal total
        total = await add(total, by)
        return total

    await outlast.wait_for_signal("word", int)
    return total


@outlast.workflow
async def relays(number: int, heard: list[int] | None = None) -> list[int]:
    """Each life hears one word and hands on what it has heard."""
    words = [*(heard or []), await outlast.wait_for_signal("word", int)]
    await add(number, 0)
    if len(words) < RELAYS:
        outlast.continue_as_new(relays(number, words))
    return words


@outlast.workflow
async def sleeps(number: int) -> int:
    await outlast.sleep(365 * 86_400)  # more than all clocks together are set ahead
    return number


@outlast.workflow
async def grips(number: int) -> int:
    return await grip(number)


async def raise_sum(companion: Companion, run_id: str) -> None:
    """Ask for one raise after the other, then say that it is enough."""
    for by in range(1, UPDATES + 1):
        await companion.ask(run_id, "raise_by", by)
    await companion.say(run_id, 0)


async def relay_words(companion: Companion, run_id: str) -> None:
    """All at once: most come before anybody waits for them, in whichever life."""
    for word in range(RELAYS):
        await companion.say(run_id, word)


async def change_mind(companion: Companion, run_id: str) -> None:
    await companion.cancel(run_id, REASON)


STEPS: list[Step[..., Any]] = [far_add, far_stumble, far_once]
FAR = frozenset(step.definition.name for step in STEPS)
"""Steps in a queue: a worker who has lost its task may have begun the attempt that the next one
makes."""
GRIPPING = grip.definition.name
ONCE = frozenset({once.definition.name, far_once.definition.name})
CHAOS_KINDS: dict[str, Kind] = {
    **KINDS,
    "remote": Kind(remote, lambda n: 2 * n + 3, deaths=0),
    "far_flaky": Kind(far_flaky, lambda n: 2 * n, deaths=0),
    "careful": Kind(careful, lambda n: n, deaths=1),
    "far_careful": Kind(far_careful, lambda n: n, deaths=0),
    "answers": Kind(answers, lambda n: n + sum(range(1, UPDATES + 1))),
    "relays": Kind(relays, lambda n: list(range(RELAYS))),
    "sleeps": Kind(sleeps, lambda n: REASON, ends=Status.CANCELLED),
}
ALL_KINDS = {**CHAOS_KINDS, "grips": Kind(grips, lambda n: n)}
TALKS: dict[str, Talk] = {
    listens.name: say_words,
    answers.name: raise_sum,
    relays.name: relay_words,
    sleeps.name: change_mind,
}


def name_of(key: str) -> str:
    """The step that a key belongs to."""
    return key.rpartition("/")[2].partition("#")[0]
