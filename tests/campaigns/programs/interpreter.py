"""The interpreter: a program as real outlast workflows and steps.

There is one workflow, which runs a block of the program, and a step for each set of options. Every
statement has a path, which is also what a step is given and returns; so a result that belongs to
another step is seen at once. Paths: ``r@0.2`` is the third statement of the first life of the root,
``:1`` a branch of a gather, ``~3`` an iteration of a loop, ``[2]`` an item of a map, ``>`` a child.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cache
from typing import Any, Literal

import outlast
from outlast.call import workflow_here
from outlast.errors import SignalTimeout, StepFailed
from outlast.testing.virtual_clock import sleep as step_sleep
from tests.campaigns.programs.ledger import Body, Ledger, Observed
from tests.campaigns.programs.program import (
    Ask,
    Block,
    Branch,
    Case,
    Child,
    Continue,
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
    every_node,
    workflows_of,
)
from tests.campaigns.programs.transactions import Effect

QUEUE = "away"
ROOT, OTHER = "r", "other"
NOTHING = -1
"""The block of a run that does nothing: its id is taken, and that is all it is there for."""
Waiting = list[asyncio.Task[Any]] | None
"""Children to await at the end of the workflow. None where a replay may skip the code that begins
them, as in a scope that is finished: there they are awaited at once."""


class Oops(Exception):
    """What steps and workflow code raise."""


ERRORS: dict[str, type[BaseException]] = {
    "Oops": Oops,
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
}


class Stage:
    """What the case that is running needs to know: one at a time in a process."""

    def __init__(self, case: Case, ledger: Ledger) -> None:
        self.case = case
        self.ledger = ledger
        self.blocks = workflows_of(case)


_stage: Stage | None = None


def enter(stage: Stage | None) -> None:
    """This is the case that runs from now on."""
    global _stage
    _stage = stage


def stage() -> Stage:
    """The case that is running."""
    assert _stage is not None
    return _stage


# -- steps ----------------------------------------------------------------------------------------


def _begin(path: str, *, undo: bool) -> Body | None:
    ledger = stage().ledger
    if ledger.closed:
        return None
    info = outlast.step_info()
    body = Body(
        tick=ledger.tick(),
        time=ledger.now(),
        run_id=info.run_id,
        uid=info.uid,
        key=info.key,
        attempt=info.attempt,
        path=path,
        undo=undo,
        idempotency_key=info.idempotency_key,
        worker="",
    )
    ledger.bodies.append(body)
    return body


def _end(body: Body | None, how: str) -> None:
    ledger = stage().ledger
    if body is not None and not ledger.closed:
        body.end, body.ended, body.ended_at = how, ledger.tick(), ledger.now()


def _do_now(call: str) -> str:
    path, _, raises, error = call.split("|")
    return _finish(_begin(path, undo=False), path, int(raises), error)


async def _do(call: str) -> str:
    path, seconds, raises, error = call.split("|")
    body = _begin(path, undo=False)
    try:
        if float(seconds):
            await step_sleep(float(seconds))
    except asyncio.CancelledError:
        _end(body, "cut")
        raise
    return _finish(body, path, int(raises), error)


def _finish(body: Body | None, path: str, raises: int, error: str) -> str:
    if body is not None and stage().ledger.raised(body.run_id, path) < raises:
        _end(body, "raised")
        raise ERRORS[error](path)
    _end(body, "ok")
    return path


async def _write(call: str) -> str:
    """The same in a transaction, which has an effect."""
    info = outlast.step_info()
    path = call.partition("|")[0]
    await outlast.connection().write(Effect(info.run_id, info.uid, path))
    return await _do(call)


async def _undo(path: str) -> None:
    _end(_begin(path, undo=True), "ok")


async def _fail_to_undo(path: str) -> None:
    _end(_begin(path, undo=True), "raised")
    raise Oops(path)


@cache
def _step(
    attempts: int,
    timeout: float | None,
    once: bool,
    queued: bool,
    plain: bool,
    transactional: bool,
    undo: str,
) -> outlast.Step[[str], str]:
    """The step with these options. Its name tells them apart."""
    options = (once, queued, plain, transactional)
    marks = "".join(mark for mark, is_so in zip("xqpw", options, strict=True) if is_so)
    name = f"do{attempts}{marks}{'' if timeout is None else f't{timeout:g}'}{undo}"
    made: outlast.Step[[str], str] = outlast.step(
        name=name,
        retry=outlast.Retry(attempts=attempts, delay=1, backoff=1, jitter=0),
        timeout=timeout,
        at_most_once=once,
        queue=QUEUE if queued else None,
        transactional=transactional,
    )(_do_now if plain else _write if transactional else _do)
    if undo:
        made.compensate(_undo if undo == "ok" else _fail_to_undo)
    return made


def step_of(node: Step | Map) -> outlast.Step[[str], str]:
    """The step that a statement calls."""
    if isinstance(node, Map):
        return _step(1, None, False, False, False, False, node.undo)
    return _step(
        node.attempts,
        node.timeout,
        node.at_most_once,
        node.queued,
        node.plain,
        node.transactional,
        node.undo,
    )


def queued_steps(case: Case) -> list[outlast.Step[[str], str]]:
    """The steps that a worker has to be given."""
    found = (step_of(node) for node in every_node(case) if isinstance(node, Step) and node.queued)
    return list(dict.fromkeys(found))


# -- the workflow ---------------------------------------------------------------------------------


@outlast.workflow
async def program(frame: str, life: int, block: int) -> Any:
    """Run a block of the program as a workflow."""
    here = stage()
    base = f"{frame}@{life}"
    if here.case.handler is not None:
        handler = here.case.handler

        @outlast.on_update
        async def ask(value: int) -> Any:
            await _block(handler, f"{base}!{value}", None)
            return value

    waiting: list[asyncio.Task[Any]] = []
    try:
        body = () if block == NOTHING else here.blocks[block]
        last = body[-1] if body and isinstance(body[-1], Continue) else None
        values = await _block(body[:-1] if last else body, base, waiting)
        for task in waiting:
            values.append(await task)
        if last is not None and life + 1 < last.lives:
            outlast.continue_as_new(program(frame, life + 1, block))
    except asyncio.CancelledError:
        _see(base, "cancelled", None)
        raise
    except Exception as error:
        _see(base, "raised", type(error).__name__)
        raise
    _see(base, "returned", values)
    return values


def _see(path: str, kind: str, value: Any) -> None:
    ledger = stage().ledger
    run = workflow_here()
    if run is not None and not ledger.closed:
        ledger.seen.append(Observed(ledger.tick(), run.run_id, run.uid, path, kind, value))


async def _block(block: Block, path: str, waiting: Waiting) -> list[Any]:
    return [await _run(node, f"{path}.{i}", waiting) for i, node in enumerate(block)]


async def _run(node: Node, path: str, waiting: Waiting) -> Any:
    try:
        value = await KINDS[type(node)](node, path, waiting)
    except asyncio.CancelledError:
        _see(path, "cancelled", None)
        raise
    except Exception as error:
        detail = error.error_type if isinstance(error, StepFailed) else str(error)
        _see(path, "raised", (type(error).__name__, detail))
        raise
    _see(path, "value", value)
    return value


# -- statements -----------------------------------------------------------------------------------


async def _call(node: Step, path: str, waiting: Waiting) -> Any:
    return await step_of(node)(f"{path}|{node.seconds}|{node.raises}|{node.error}")


async def _map(node: Map, path: str, waiting: Waiting) -> Any:
    calls = [
        f"{path}[{i}]|{node.seconds}|{99 if i in node.fails else 0}|Oops" for i in range(node.items)
    ]
    found: list[Any] = await outlast.map(  # tolerated failures are values
        step_of(node),
        calls,
        concurrency=node.concurrency,
        tolerate=node.tolerate,
        enough=node.enough,
    )
    return ["failed" if isinstance(one, StepFailed) else one for one in found]


async def _gather(node: Gather, path: str, waiting: Waiting) -> Any:
    own: dict[int, Any] = {}

    async def branch(i: int) -> Any:
        own[i] = await _block(node.branches[i], f"{path}:{i}", waiting)
        return own[i]

    if node.group:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(i)) for i in range(len(node.branches))]
        values = [task.result() for task in tasks]
    else:
        values = await asyncio.gather(*(branch(i) for i in range(len(node.branches))))
    if values != [own.get(i) for i in range(len(node.branches))]:
        stage().ledger.problems.append(f"{path} gave {values}, its branches {own}")
    return values


async def _timeout(node: Timeout, path: str, waiting: Waiting) -> Any:
    try:
        async with asyncio.timeout(node.seconds):
            return await _block(node.body, f"{path}:0", waiting)
    except TimeoutError:
        return "timeout"


async def _child(node: Child, path: str, waiting: Waiting) -> Any:
    here = stage()
    own = f"own-{zlib.crc32(path.encode()):x}" if node.own_id else None
    if node.taken:
        own = OTHER
    close: Literal["abandon", "cancel"] = "abandon" if node.abandon else "cancel"
    block = here.blocks.index(node.body)
    run = outlast.child(program(f"{path}>", 0, block), id=own, parent_close=close)
    if node.wait == "now" or waiting is None:
        return await run
    task = asyncio.ensure_future(_aside(run))
    if node.wait == "end":
        waiting.append(task)
    else:
        _unwatched.add(task)
        task.add_done_callback(_unwatched.discard)
    return "begun"


_unwatched: set[asyncio.Task[Any]] = set()
"""Tasks for which no code waits: a loop keeps only weak references."""


async def _aside(run: Awaitable[Any]) -> Any:
    try:
        return await run
    except Exception as error:  # noqa: BLE001 - it is a value here
        return type(error).__name__


async def _scope(node: Scope, path: str, waiting: Waiting) -> Any:
    async def part() -> Any:
        return await _block(node.body, f"{path}:0", None)

    return await outlast.scope(part)


async def _loop(node: Loop, path: str, waiting: Waiting) -> Any:
    async def turn(count: int) -> Any:
        await _block(node.body, f"{path}~{count}", None)
        return outlast.Stop(node.times) if count + 1 >= node.times else count + 1

    return await outlast.loop(turn, 0)


async def _sleep(node: Sleep, path: str, waiting: Waiting) -> Any:
    await outlast.sleep(node.seconds)
    return None


async def _signal(node: Signal, path: str, waiting: Waiting) -> Any:
    try:
        return await outlast.wait_for_signal(node.name, timeout=node.timeout)
    except SignalTimeout:
        return "timeout"


async def _halt(node: Halt, path: str, waiting: Waiting) -> Any:
    return await outlast.halt(path)


async def _ask(node: Ask, path: str, waiting: Waiting) -> Any:
    if node.late is None:
        return await outlast.ask("word", to="people", data=path)
    due = timedelta(seconds=node.late)
    return await outlast.ask("word", to="people", data=path, due=due, escalate="others")


async def _branch(node: Branch, path: str, waiting: Waiting) -> Any:
    if outlast.branch("choice", node.choice):
        return await _block(node.body, f"{path}:0", waiting)
    return None


async def _publish(node: Publish, path: str, waiting: Waiting) -> Any:
    outlast.publish(last=path)
    return None


async def _raise(node: Raise, path: str, waiting: Waiting) -> Any:
    raise Oops(path)


async def _try(node: Try, path: str, waiting: Waiting) -> Any:
    try:
        return await _block(node.body, f"{path}:0", waiting)
    except Exception:  # noqa: BLE001 - that is the statement
        return await _block(node.handler, f"{path}:1", waiting)
    finally:
        if node.final:
            await _block(node.final, f"{path}:2", waiting)


async def _nothing(node: Node, path: str, waiting: Waiting) -> Any:
    return None


KINDS: dict[type[Node], Callable[[Any, str, Any], Awaitable[Any]]] = {
    Step: _call,
    Map: _map,
    Gather: _gather,
    Timeout: _timeout,
    Child: _child,
    Scope: _scope,
    Loop: _loop,
    Sleep: _sleep,
    Signal: _signal,
    Halt: _halt,
    Ask: _ask,
    Branch: _branch,
    Publish: _publish,
    Raise: _raise,
    Try: _try,
    Continue: _nothing,
}
