"""Steps: called, tried again, given up."""

from __future__ import annotations

import outlast
from outlast import sync
from outlast.errors import StepFailed
from tests.corpus.case import Case, Failed
from tests.corpus.stage import notes, takes


@outlast.step
async def add(left: int, right: int) -> int:
    return left + right


@outlast.step(name="add")
def add_in_thread(left: int, right: int) -> int:
    return left + right


@sync.step(name="add")
def add_plainly(left: int, right: int) -> int:
    return left + right


# -- one after the other --------------------------------------------------------------------------


@outlast.workflow
async def one_after_the_other(number: int) -> int:
    for _ in range(3):
        number = await add(number, 1)
    return number


@outlast.workflow
def one_after_the_other_sync(number: int) -> int:
    for _ in range(3):
        number = add_plainly(number, 1)
    return number


@outlast.workflow
async def plain_steps(number: int) -> int:
    for _ in range(3):
        number = await add_in_thread(number, 1)
    return number


ONE_AFTER_THE_OTHER = """
    workflow.started
    step.started add
    step.completed add
    step.started add#2
    step.completed add#2
    step.started add#3
    step.completed add#3
    workflow.completed
"""


@outlast.workflow
async def nothing_to_do() -> str:
    return "done"


# -- tried again ----------------------------------------------------------------------------------


def fails_so_often(times: int) -> None:
    """Raise the first `times` times that anybody calls this on the stage."""
    if len(notes()) < times:
        notes().append("failed")
        raise ConnectionError("not yet")


@outlast.step(retry=outlast.Retry(attempts=5, delay=600, backoff=3))
async def flaky() -> str:
    fails_so_often(2)
    return "at last"


@sync.step(name="flaky", retry=outlast.Retry(attempts=5, delay=600, backoff=3))
def flaky_plainly() -> str:
    fails_so_often(2)
    return "at last"


@outlast.workflow
async def tries_again() -> str:
    return await flaky()


@outlast.workflow
def tries_again_sync() -> str:
    return flaky_plainly()


TRIES_AGAIN = """
    workflow.started
    step.started flaky
    step.failed flaky
    step.started flaky
    step.failed flaky
    step.started flaky
    step.completed flaky
    workflow.completed
"""


@outlast.step(retry=outlast.Retry(attempts=3, delay=600))
async def hopeless(reason: str) -> None:
    raise ConnectionError(reason)


@outlast.workflow
async def gives_up() -> str:
    try:
        await hopeless("down")
    except StepFailed as failure:
        return f"{failure.error_type}: {failure.error}"
    return "never"


@outlast.step(retry=outlast.Retry(attempts=9, give_up_on=(ValueError,)))
async def picky() -> None:
    raise ValueError("it will not get better")


@outlast.workflow
async def gives_up_at_once() -> None:
    await picky()


@outlast.step(retry=outlast.Retry(attempts=9, on=(ConnectionError,)))
async def choosy() -> None:
    raise KeyError("not worth another try")


@outlast.workflow
async def is_not_worth_it() -> str:
    try:
        await choosy()
    except StepFailed as failure:
        return failure.error_type
    return "never"


@outlast.workflow
async def goes_on_after_a_failure(number: int) -> int:
    try:
        await picky()
    except StepFailed:
        number = await add(number, 10)
    return await add(number, 1)


# -- time and knowledge of an attempt -------------------------------------------------------------


@outlast.step(timeout=30)
async def slow() -> None:
    await takes(3600)


@outlast.workflow
async def takes_too_long() -> str:
    try:
        await slow()
    except StepFailed as failure:
        return failure.error_type
    return "never"


@outlast.step(retry=outlast.Retry(attempts=5, delay=600))
async def counts_up(to: int) -> int:
    done = outlast.last_heartbeat(int) or 0
    if done < to:
        outlast.heartbeat(done + 1)
        raise ConnectionError("cut off")
    return done


@outlast.workflow
async def goes_on_where_it_was() -> int:
    return await counts_up(2)


@outlast.step(retry=outlast.Retry(attempts=5, delay=600))
async def tells_its_key() -> int:
    keys = notes()
    keys.append(outlast.step_info().idempotency_key)
    if len(keys) < 3:
        raise ConnectionError("again, please")
    return len(set(keys))


@outlast.workflow
async def keeps_its_key() -> int:
    return await tells_its_key()


@outlast.step(at_most_once=True)
async def launch(rocket: str) -> str:
    await takes(60)
    return f"{rocket} is gone"


@outlast.workflow
async def launches_once() -> str:
    try:
        return await launch("r1")
    except StepFailed as failure:
        return failure.error_type


CASES = [
    Case(one_after_the_other, ONE_AFTER_THE_OTHER, 4, args=(1,)),
    Case(one_after_the_other_sync, ONE_AFTER_THE_OTHER, 4, args=(1,)),
    Case(plain_steps, ONE_AFTER_THE_OTHER, 4, args=(1,)),
    Case(nothing_to_do, "workflow.started\nworkflow.completed", "done"),
    Case(tries_again, TRIES_AGAIN, "at last", bodies=3),
    Case(tries_again_sync, TRIES_AGAIN, "at last", bodies=3),
    Case(
        gives_up,
        """
        workflow.started
        step.started hopeless
        step.failed hopeless
        step.started hopeless
        step.failed hopeless
        step.started hopeless
        step.failed hopeless
        workflow.completed
        """,
        "ConnectionError: down",
        bodies=3,
    ),
    Case(
        gives_up_at_once,
        """
        workflow.started
        step.started picky
        step.failed picky
        workflow.failed
        """,
        Failed("ValueError: it will not get better"),
        bodies=1,
    ),
    Case(
        is_not_worth_it,
        """
        workflow.started
        step.started choosy
        step.failed choosy
        workflow.completed
        """,
        "KeyError",
        bodies=1,
    ),
    Case(
        goes_on_after_a_failure,
        """
        workflow.started
        step.started picky
        step.failed picky
        step.started add
        step.completed add
        step.started add#2
        step.completed add#2
        workflow.completed
        """,
        12,
        args=(1,),
        bodies=3,
    ),
    Case(
        takes_too_long,
        """
        workflow.started
        step.started slow
        step.failed slow
        workflow.completed
        """,
        "StepTimeout",
        bodies=1,
    ),
    Case(
        goes_on_where_it_was,
        """
        workflow.started
        step.started counts_up
        step.progress counts_up
        step.failed counts_up
        step.started counts_up
        step.progress counts_up
        step.failed counts_up
        step.started counts_up
        step.completed counts_up
        workflow.completed
        """,
        2,
        bodies=3,
    ),
    Case(
        keeps_its_key,
        """
        workflow.started
        step.started tells_its_key
        step.failed tells_its_key
        step.started tells_its_key
        step.failed tells_its_key
        step.started tells_its_key
        step.completed tells_its_key
        workflow.completed
        """,
        1,
        bodies=3,
    ),
    Case(
        launches_once,
        """
        workflow.started
        step.started launch
        step.completed launch
        workflow.completed
        """,
        "r1 is gone",
        # A process that dies during the launch leaves it unknown, and it is not tried again.
        after_crash=("Interrupted",),
    ),
]
