"""`outlast tail`: follow a run, or all runs that match a query."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import NamedTuple

import click

from outlast.cli.arguments import RUN, find_run
from outlast.cli.main import Exit
from outlast.cli.output import Output, iso, neutral
from outlast.cli.run_views import as_text, event_record, run_record
from outlast.cli.session import Session, client_of, with_session
from outlast.model.event import Event
from outlast.model.query import Order, cursor_at
from outlast.model.run import Run, Status
from outlast.model.times import to_micros
from outlast.ports.store import Store
from outlast.query import Filter, parse, search
from outlast.query.filter import moment_of, shifted

LOOK_AGAIN = 0.5
AT_ONCE = 200
OVERLAP = timedelta(seconds=5)
RED = ("failed", "timeout", "cancelled")


@click.command("tail")
@click.argument("run_id", metavar="[RUN]", required=False, type=RUN)
@click.option("--after", default=0, metavar="SEQUENCE", help="Start after this event.")
@click.option("--where", "query", default="", metavar="QUERY", help="Without RUN: only these runs.")
@click.option("--since", metavar="TIME", help="Without RUN: start with changes since then.")
@click.option("--no-follow", is_flag=True, help="Print what exists and exit.")
@with_session
async def tail_command(
    session: Session,
    *,
    run_id: str | None,
    after: int,
    query: str,
    since: str | None,
    no_follow: bool,
) -> None:
    """Follow a run event by event until it ends; without RUN, all runs that match as they change,
    starting with the 200 that changed last.

    Exits with 7 if the run failed or was cancelled, and with 4 if it was moved to another store, whose address
    is printed. After an interruption, --after with the last sequence or --since with the last time continues
    without a gap.

    \b
      outlast tail order-1
      outlast tail order-1 --after 12
      outlast tail --where workflow:checkout
      outlast tail --since now-1h --no-follow
    """
    wanted = parse(query)
    if run_id is not None and (since is not None or query):
        raise click.UsageError("--where and --since are for many runs: omit them, or omit RUN")
    if run_id is None and after:
        raise click.UsageError("--after is for the history of one run: name RUN, or use --since")
    async with session.store() as store:
        if run_id is None:
            start = None if since is None else moment_of(since, await store.now())
            if since is not None and start is None:
                raise click.UsageError(
                    f"{since!r} is not a time: use a date, a time such as 2026-01-31T12:00:00Z, or now-1h"
                )
            await _changes(store, session.out, wanted, start, follow=not no_follow)
            return
        run = await find_run(store, run_id)
        status = await _events(store, session.out, run.id, after, follow=not no_follow)
    if status in (Status.FAILED, Status.CANCELLED) and not no_follow:
        raise SystemExit(Exit.RUN_FAILED)


async def _events(store: Store, out: Output, run_id: str, after: int, *, follow: bool) -> Status:
    async for event in client_of(store).get(run_id).events(after=after, follow=follow):
        if event.sequence <= after:
            out.note("the run continued as new: a new history starts")
        _show(out, event)
        after = event.sequence
    return (await store.get(run_id)).status


async def _changes(
    store: Store, out: Output, wanted: Filter, since: datetime | None, *, follow: bool
) -> None:
    """Runs whose record has changed, oldest change first."""
    seen: dict[str, _Seen] = {}
    first = True
    while True:
        wakeups = store.notifier.wakeups
        if since is None:
            page = await search(store, wanted, order=Order.LATEST, limit=AT_ONCE)
            since = page.runs[-1].updated_at if page.runs else await store.now()
            runs = page.runs[::-1]
        else:
            runs = [run async for run in _changed(store, wanted, since)]
        for run in runs:
            state = _Seen(run.uid, run.revision, run.updated_at)
            if seen.get(run.id) != state:
                seen[run.id] = state
                _show_run(out, run, full=first)
        since = max([since, *(run.updated_at for run in runs)])
        seen = {id: one for id, one in seen.items() if one.at >= shifted(since, -OVERLAP)}
        first = False
        if not follow:
            return
        await store.notifier.wait(store.clock, LOOK_AGAIN, since=wakeups)


async def _changed(store: Store, wanted: Filter, since: datetime) -> AsyncIterator[Run]:
    """Runs that match and have changed since then, or shortly before: a commit that took long to write
    has an older time than one that was already read."""
    after: str | None = cursor_at((to_micros(shifted(since, -OVERLAP)), ""), Order.STALEST)
    while after is not None:
        page = await search(store, wanted, order=Order.STALEST, limit=AT_ONCE, after=after)
        for run in page.runs:
            yield run
        after = page.next


class _Seen(NamedTuple):
    uid: str
    revision: int
    at: datetime


def _show_run(out: Output, run: Run, *, full: bool) -> None:
    if out.json:
        out.value(run_record(run))
        return
    cell = out.status(run.status)
    when = out.moment(run.updated_at) if full else iso(run.updated_at)[11:19]
    about = neutral(run.error or run.current_step or "")
    out.line(
        f"{when:>9}  {out.styled(f'{cell.text:9}', cell.colour)}  {neutral(run.id)}  "
        f"{out.short(about, 40 + len(run.id))}".rstrip()
    )


def _show(out: Output, event: Event) -> None:
    if out.json:
        out.value(event_record(event))
        return
    when = iso(event.timestamp) if out.utc else iso(event.timestamp)[11:23]
    bad = event.type.endswith(RED)
    good = event.type.endswith("completed")
    colour = "red" if bad else "green" if good else None
    about = f"{when}  {event.sequence:>4}  "
    kind = f"{event.type:<22}"
    data = as_text(event.output if event.output is not None else event.data)
    name = neutral(event.step_name)
    used = len(about) + len(kind) + len(name) + 4
    rest = out.short(data, used) if out.width - used >= 12 and data != "{}" else ""
    out.line(f"{about}{out.styled(kind, colour)}  {name}  {rest}".rstrip())
