"""Waiting: for time, for signals, for people."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from msgspec import Raw, Struct

import outlast
from outlast import sync
from outlast.errors import SignalTimeout
from outlast.model import Run, Status
from outlast.model.run_contents import Item, Send
from tests.corpus.case import RUN, Case
from tests.corpus.stage import Stage, takes

HOUR = 3600


@outlast.step
async def work(name: str) -> str:
    await takes(60)
    return name


@sync.step(name="work")
def prepare(name: str) -> str:
    return name


# -- time -----------------------------------------------------------------------------------------


@outlast.workflow
async def naps() -> str:
    before = outlast.now()
    await outlast.sleep(days=30)
    return f"{(outlast.now() - before).days} days"


@outlast.workflow
def naps_sync() -> str:
    before = sync.now()
    sync.sleep(days=30)
    return f"{(sync.now() - before).days} days"


NAPS = """
    workflow.started
    timer.started timer
    timer.fired timer
    workflow.completed
"""


@outlast.workflow
async def sleeps_until_tomorrow() -> bool:
    tomorrow = outlast.now() + timedelta(days=1)
    await outlast.sleep_until(tomorrow)
    await outlast.sleep_until(tomorrow)  # it is over: no timer
    return outlast.now() >= tomorrow


@outlast.workflow
async def timers_in_timers() -> list[str]:
    ends: list[str] = []

    async def nap(name: str, hours: float) -> None:
        await outlast.sleep(hours=hours)
        ends.append(name)

    async with asyncio.timeout(9 * HOUR):
        try:
            async with asyncio.timeout(2 * HOUR):
                await asyncio.gather(nap("three", 3), nap("one", 1))
        except TimeoutError:
            ends.append("two")
        await nap("four", 4)
    return ends


# -- signals --------------------------------------------------------------------------------------


class Answer(Struct):
    ok: bool
    by: str


@outlast.workflow
async def waits_for_an_answer() -> str:
    answer = await outlast.wait_for_signal("answer", Answer, timeout=timedelta(days=3))
    return answer.by if answer.ok else "no"


@outlast.workflow
def waits_for_an_answer_sync() -> str:
    answer = sync.wait_for_signal("answer", Answer, timeout=timedelta(days=3))
    return answer.by if answer.ok else "no"


WAITS_FOR_AN_ANSWER = """
    workflow.started
    signal.waiting signal:answer
    signal.received signal:answer
    workflow.completed
"""


async def answers(stage: Stage) -> None:
    await stage.until_waiting("signal")
    await stage.signal("answer", {"ok": True, "by": "ann"})


@outlast.workflow
async def hears_it_too_early() -> int:
    await work("slowly")
    return await outlast.wait_for_signal("number", int)


async def is_early(stage: Stage) -> None:
    await stage.signal("number", 7)


@outlast.workflow
async def hears_in_order() -> list[int]:
    return [await outlast.wait_for_signal("number", int) for _ in range(3)]


async def sends_three(stage: Stage) -> None:
    await stage.signal("number", 1)
    await stage.signal("number", 2)
    await stage.until_recorded("signal.waiting", "signal:number#3")
    await stage.signal("number", 3)


@outlast.workflow
async def takes_what_was_sent_first() -> str:
    """Asks for names in another order than that in which they were sent."""
    orders: list[str] = []
    await work("slowly")
    outlast.on_update(lambda: orders.append("withdraw"), name="withdraw")
    outlast.on_update(lambda: orders.append("deposit"), name="deposit")

    async def hear(name: str) -> None:
        await outlast.wait_for_signal(name)
        orders.append(name)

    await asyncio.gather(hear("audit"), hear("open"))
    return " ".join(orders)


async def sends_in_an_order(stage: Stage) -> None:
    sent = [
        Item(kind="signal", name="open", id="1"),
        Item(kind="update", name="deposit", id="2"),
        Item(kind="update", name="withdraw", id="3"),
        Item(kind="update", name="deposit", id="4"),
        Item(kind="signal", name="audit", id="5"),
    ]
    await stage.store.send([Send(run_id=RUN, item=item) for item in sent])


async def sends_three_at_once(stage: Stage) -> None:
    for number in (1, 2, 3):
        await stage.signal("number", number)


@outlast.workflow
async def many_wait_for_one_name() -> list[int]:
    return list(await asyncio.gather(*(outlast.wait_for_signal("number", int) for _ in range(3))))


@outlast.workflow
async def hears_each_once() -> list[int]:
    heard = [await outlast.wait_for_signal("number", int) for _ in range(2)]
    await outlast.sleep(hours=1)
    return heard


async def repeats_itself(stage: Stage) -> None:
    for _ in range(3):
        await stage.signal("number", 1, dedup="the first")
    await stage.until_recorded("signal.received", "signal:number")
    await stage.signal("number", 1, dedup="the first")
    await stage.signal("number", 2, dedup="the second")


# -- a signal and a timeout -----------------------------------------------------------------------


@outlast.workflow
async def waits_an_hour() -> str:
    try:
        answer = await outlast.wait_for_signal("answer", str, timeout=HOUR)
    except SignalTimeout as late:
        await outlast.sleep(hours=1)
        return str(late)
    await outlast.sleep(hours=2)  # the timeout is over with the signal: nothing wakes for it
    return answer


async def is_in_time(stage: Stage) -> None:
    await takes(HOUR / 2)
    await stage.signal("answer", "in time")


async def is_late(stage: Stage) -> None:
    await stage.until_recorded("signal.timeout", "signal:answer")
    await stage.signal("answer", "too late")


@outlast.workflow
async def asks_twice() -> str:
    try:
        return await outlast.wait_for_signal("answer", str, timeout=HOUR)
    except SignalTimeout:
        return "second: " + await outlast.wait_for_signal("answer", str, timeout=HOUR)


# -- people ---------------------------------------------------------------------------------------


@outlast.workflow
async def asks_a_person() -> str:
    await work("prepares")
    return str(await outlast.halt({"question": "how many?"}, int) + 1)


@outlast.workflow
def asks_a_person_sync() -> str:
    prepare("prepares")
    return str(sync.halt({"question": "how many?"}, int) + 1)


ASKS_A_PERSON = """
    workflow.started
    step.started work
    step.completed work
    halt.started halt
    halt.resumed halt
    workflow.completed
"""


async def says_41(stage: Stage) -> None:
    def asks(run: Run) -> bool:
        return run.status is Status.HALTED and run.owner is None

    run = await stage.until(asks)
    assert run.halt_data == Raw(b'{"question":"how many?"}')
    assert run.recover_to == run.resume_point == "halt"
    await stage.client.get(RUN).resume(41)


CASES = [
    Case(naps, NAPS, "30 days"),
    Case(naps_sync, NAPS, "30 days"),
    Case(sleeps_until_tomorrow, NAPS, True),
    Case(
        timers_in_timers,
        """
        workflow.started
        timer.started timer
        timer.started timer#2
        timer.started 0/timer
        timer.started 1/timer
        timer.fired 1/timer
        timer.fired timer#2
        operation.abandoned 0/timer
        timer.started timer#3
        timer.fired timer#3
        operation.abandoned timer
        workflow.completed
        """,
        ["one", "two", "four"],
    ),
    Case(waits_for_an_answer, WAITS_FOR_AN_ANSWER, "ann", world=answers),
    Case(waits_for_an_answer_sync, WAITS_FOR_AN_ANSWER, "ann", world=answers),
    Case(
        hears_it_too_early,
        """
        workflow.started
        step.started work
        step.completed work
        signal.waiting signal:number
        signal.received signal:number
        workflow.completed
        """,
        7,
        world=is_early,
    ),
    Case(
        takes_what_was_sent_first,
        """
        workflow.started
        step.started work
        step.completed work
        signal.waiting 0/signal:audit
        signal.waiting 1/signal:open
        signal.received 1/signal:open
        update.accepted update:deposit#1
        update.completed update:deposit#1
        update.accepted update:withdraw#1
        update.completed update:withdraw#1
        update.accepted update:deposit#2
        update.completed update:deposit#2
        signal.received 0/signal:audit
        workflow.completed
        """,
        "open deposit withdraw deposit audit",
        world=sends_in_an_order,
    ),
    Case(
        hears_in_order,
        """
        workflow.started
        signal.waiting signal:number
        signal.received signal:number
        signal.waiting signal:number#2
        signal.received signal:number#2
        signal.waiting signal:number#3
        signal.received signal:number#3
        workflow.completed
        """,
        [1, 2, 3],
        world=sends_three,
    ),
    Case(
        many_wait_for_one_name,
        """
        workflow.started
        signal.waiting 0/signal:number
        signal.waiting 1/signal:number
        signal.waiting 2/signal:number
        signal.received 0/signal:number
        signal.received 1/signal:number
        signal.received 2/signal:number
        workflow.completed
        """,
        [1, 2, 3],
        world=sends_three_at_once,
    ),
    Case(
        hears_each_once,
        """
        workflow.started
        signal.waiting signal:number
        signal.received signal:number
        signal.waiting signal:number#2
        signal.received signal:number#2
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        [1, 2],
        world=repeats_itself,
    ),
    Case(
        waits_an_hour,
        """
        workflow.started
        signal.waiting signal:answer
        signal.received signal:answer
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        "in time",
        name="a_signal_before_its_timeout",
        world=is_in_time,
    ),
    Case(
        waits_an_hour,
        """
        workflow.started
        signal.waiting signal:answer
        signal.timeout signal:answer
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        "signal 'answer' did not come in time",
        name="a_signal_after_its_timeout",
        world=is_late,
    ),
    Case(
        asks_twice,
        """
        workflow.started
        signal.waiting signal:answer
        signal.timeout signal:answer
        signal.waiting signal:answer#2
        signal.received signal:answer#2
        workflow.completed
        """,
        "second: too late",
        world=is_late,
    ),
    Case(asks_a_person, ASKS_A_PERSON, "42", world=says_41),
    Case(asks_a_person_sync, ASKS_A_PERSON, "42", world=says_41),
]
