"""Rendering: a case as Python that a person can read, and as data that can be kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

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


def as_data(value: Any) -> str:
    """An expression that makes this case, without what is as by default."""
    if isinstance(value, tuple):
        inside = ", ".join(map(as_data, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if not is_dataclass(value):
        return repr(value)
    given = []
    for field in fields(value):
        found = getattr(value, field.name)
        if field.default is MISSING or found != field.default:
            given.append(f"{field.name}={as_data(found)}")
    return f"{type(value).__name__}({', '.join(given)})"


def as_python(case: Case) -> str:
    """The program as a workflow, and what happens to it."""
    lines = []
    settings = [f"{case.workers} workers"] if case.workers > 1 else []
    settings += ["a snapshot after every second event"] if case.snapshots else []
    settings += ["evicted whenever possible"] if case.evicts else []
    if settings:
        lines.append(f"# {', '.join(settings)}")
    lines += [f"# {_fault(fault)}" for fault in case.faults]
    lines += [f"# {_act(act)}" for act in case.acts]
    lines += ["@outlast.workflow", "async def program():"]
    if case.handler is not None:
        lines += ["    @outlast.on_update", "    async def ask(value):"]
        lines += [*_block(case.handler, 2), "        return value"]
    lines += _block(case.body, 1)
    return "\n".join(lines)


def _fault(fault: Fault) -> str:
    call = "call of the store" if fault.any_call else "commit"
    lasts = f" for {fault.seconds:g} s" if fault.seconds else ""
    return f"{call} {fault.at} of the workers: {fault.kind}{lasts}"


def _act(act: Act) -> str:
    when = "when all rests"
    if act.commits is not None:
        when = f"after {act.commits} commits"
    elif act.seconds is not None:
        when = f"after {act.seconds:g} s"
    detail = f" {act.name!r}" if act.do == "signal" else ""
    detail += f" dedup={act.dedup!r}" if act.dedup else ""
    return f"{when}: {act.do}{detail}, run {act.run}"


def _block(block: Block, depth: int) -> Iterator[str]:
    if not block:
        yield f"{'    ' * depth}pass"
    for node in block:
        for line in _node(node):
            yield f"{'    ' * depth}{line}"


def _inside(block: Block) -> list[str]:
    return list(_block(block, 1))


def _node(node: Node) -> Iterator[str]:
    match node:
        case Step():
            yield f"await step({_options(node)})"
        case Map():
            yield f"await outlast.map(step, range({node.items}){_options(node, ', ', ('items',))})"
        case Gather(branches=branches, group=group):
            yield "async with asyncio.TaskGroup():" if group else "await asyncio.gather("
            for branch in branches:
                yield "    async:"
                yield from (f"    {line}" for line in _inside(branch))
            if not group:
                yield ")"
        case Timeout(seconds=seconds, body=body):
            yield f"async with asyncio.timeout({seconds:g}):"
            yield from _inside(body)
        case Child(body=body):
            yield f"async child{_options(node, ' ', ('body',))}:"
            yield from _inside(body)
        case Scope(body=body):
            yield "async with outlast.scope:"
            yield from _inside(body)
        case Loop(body=body, times=times):
            yield f"async for _ in outlast.loop({times}):"
            yield from _inside(body)
        case Sleep(seconds=seconds):
            yield f"await outlast.sleep({seconds:g})"
        case Signal():
            yield f"await outlast.wait_for_signal({node.name!r}{_options(node, ', ', ('name',))})"
        case Halt():
            yield "await outlast.halt()"
        case Ask():
            yield f"await outlast.ask('word'{_options(node, ', ')})"
        case Branch(choice=choice, body=body):
            yield f"if outlast.branch('choice', {choice}):"
            yield from _inside(body)
        case Publish():
            yield "outlast.publish(last=…)"
        case Raise():
            yield "raise Oops"
        case Try(body=body, handler=handler, final=final):
            yield "try:"
            yield from _inside(body)
            yield "except Exception:"
            yield from _inside(handler)
            if final:
                yield "finally:"
                yield from _inside(final)
        case Continue(lives=lives):
            yield f"continue_as_new()  # {lives} lives"


def _options(node: Node, front: str = "", without: tuple[str, ...] = ()) -> str:
    given = [
        f"{field.name}={getattr(node, field.name)!r}"
        for field in fields(node)
        if field.name not in without and getattr(node, field.name) != field.default
    ]
    return front + ", ".join(given) if given else ""
