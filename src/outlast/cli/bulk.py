"""A command on many runs: those that are named, or all that match a query.

The matching runs are counted and shown first, and changed after confirmation. Each run is changed by
itself, in batches, so the command can be interrupted and repeated: runs that are already changed are
reported and left as they are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import click

from outlast.cli.arguments import confirm, find_run
from outlast.cli.main import Exit
from outlast.cli.output import Output, Progress, neutral
from outlast.cli.session import Session
from outlast.errors import OutlastError, TryAgain
from outlast.model.run import Run
from outlast.ports.store import Store
from outlast.query import Filter, all_matching, count, parse

BATCH = 50
Action = Callable[[Run], Awaitable[str | None]]
"""Changes a run; returns a remark for the output, or None."""
Unfit = Callable[[Run], bool]
"""Whether a run, as it is, would refuse the change."""


async def do_to_named(
    store: Store, out: Output, ids: tuple[str, ...], verb: str, act: Action
) -> None:
    """Change the runs that are named. The first refusal is raised."""
    runs = [await find_run(store, typed, certain=True) for typed in ids]
    for run in runs:
        _tell(out, run.id, verb, await act(run))


async def do_to_matching(
    session: Session,
    store: Store,
    text: str,
    verb: str,
    act: Action,
    *,
    unfit: Unfit,
    dry_run: bool,
    yes: bool,
) -> None:
    """Change all runs that match, after confirmation."""
    wanted, out = parse(text).without_schedules(), session.out
    if not wanted.text.strip():
        raise click.UsageError(
            "--where is empty: to select all runs, use --where 'status:open,ended'"
        )
    now = await store.now()
    looking = Progress("looked at", None, "runs")
    number = await count(store, wanted, now=now, progress=looking.at)
    looking.end()
    some = [run async for run in _first(store, wanted, 5)]
    if dry_run:
        await _dry(store, out, wanted, verb, unfit)
        return
    out.note(
        f"{number} {'run matches' if str(number) == '1' else 'runs match'} in {session.place.shown}"
    )
    for run in some:
        out.note(f"  {run.id}  {run.status}  {run.workflow}")
    if number.number > len(some):
        out.note("  …")
    if not number.number:
        return
    if not yes:
        look = f"add --yes to {verb} {number} without confirmation, or --dry-run to list them"
        await confirm(f"{verb} them?", look)
    counts: Counter[str] = Counter()
    progress = Progress(verb, None if number.more else number.number)
    batch: list[Run] = []
    async for run in all_matching(store, wanted, now=now):
        batch.append(run)
        if len(batch) == BATCH:
            counts += await _do(out, batch, verb, act)
            batch = []
            progress.at(counts.total())
    counts += await _do(out, batch, verb, act)
    progress.end()
    summary = ", ".join(f"{number:,} {what}" for what, number in counts.items())
    out.note(f"{verb}: {summary or 'nothing was left to do'}")
    if counts["refused"]:
        raise SystemExit(Exit.REFUSED)


async def _first(store: Store, wanted: Filter, number: int) -> AsyncIterator[Run]:
    left = number
    async for run in all_matching(store, wanted):
        if left == 0:
            return
        left -= 1
        yield run


async def _dry(store: Store, out: Output, wanted: Filter, verb: str, unfit: Unfit) -> None:
    number = refused = 0
    progress = Progress(verb, None)
    async for run in all_matching(store, wanted):
        number += 1
        refuses = unfit(run)
        refused += refuses
        if out.json:
            out.value({"id": run.id, "status": run.status, "would": "refuse" if refuses else verb})
        else:
            would = "would refuse" if refuses else f"would {verb}"
            out.line(f"{would}  {neutral(run.id)}  {run.status}")
        progress.at(number)
    progress.end()
    some = f", {refused:,} of them would refuse" if refused else ""
    out.note(f"{number:,} in total{some}; nothing was changed")


async def _do(out: Output, batch: list[Run], verb: str, act: Action) -> Counter[str]:
    """Change a batch concurrently. An unreachable store ends the command; a refusal concerns one run."""
    outcomes = await asyncio.gather(*(act(run) for run in batch), return_exceptions=True)
    counts: Counter[str] = Counter()
    for run, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, OutlastError) and not isinstance(outcome, TryAgain):
            counts["refused"] += 1
            out.note(f"  {run.id}: {outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            counts["done"] += 1
            if out.json:
                _tell(out, run.id, verb, outcome)
    return counts


def _tell(out: Output, run_id: str, verb: str, what: str | None) -> None:
    if out.json:
        out.value({"id": run_id, "did": verb, **({} if what is None else {"told": what})})
    else:
        out.line(f"{verb}  {neutral(run_id)}" + (f"  {neutral(what)}" if what else ""))
