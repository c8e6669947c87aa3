"""`outlast tail`: follow a run, or the newest runs, as they go."""

from __future__ import annotations

import click

from outlast.cli.codes import Exit
from outlast.cli.completing import RUN
from outlast.cli.finding import find_run
from outlast.cli.moments import iso
from outlast.cli.neutral import neutral
from outlast.cli.output import Output
from outlast.cli.records import as_text, event_record, run_record
from outlast.cli.session import Session, with_session
from outlast.model.event import Event
from outlast.model.run import Status
from outlast.ports.store import Store
from outlast.query import Filter, parse, search

LOOK_AGAIN = 0.5
AT_ONCE = 200
RED = ("failed", "timeout", "cancelled")


@click.command("tail")
@click.argument("run_id", metavar="[RUN]", required=False, type=RUN)
@click.option("--after", default=0, metavar="SEQUENCE", help="Go on after this event.")
@click.option("--where", "query", default="", metavar="QUERY", help="Without RUN: only these runs.")
@click.option("--no-follow", is_flag=True, help="Show what there is and stop.")
@with_session
async def tail_command(
    session: Session, *, run_id: str | None, after: int, query: str, no_follow: bool
) -> None:
    """Follow a run event by event until it ends; without RUN, the runs that match as they change: the
    200 that were created last, and no older ones.

    Exits with 7 if the run failed or was cancelled. Interrupted, it can go on with --after.

    \b
      outlast tail order-1
      outlast tail order-1 --after 12
      outlast tail --where workflow:checkout
    """
    wanted = parse(query)
    async with session.store() as store:
        if run_id is None:
            await _changes(store, session.out, wanted, follow=not no_follow)
            return
        run = await find_run(store, run_id)
        status = await _events(store, session.out, run.id, after, follow=not no_follow)
    if status in (Status.FAILED, Status.CANCELLED) and not no_follow:
        raise SystemExit(Exit.RUN_FAILED)


async def _events(store: Store, out: Output, run_id: str, after: int, *, follow: bool) -> Status:
    uid = (await store.get(run_id)).uid
    while True:
        rings = store.notifier.rings
        run = await store.get(run_id)
        if run.uid != uid:
            out.note("it has continued as new: a new history begins")
            uid, after = run.uid, 0
        async for event in store.stream(run_id, after=after):
            _show(out, event)
            after = event.sequence
        if run.status.terminal and after >= run.sequence:
            return run.status
        if not follow:
            return run.status
        await store.notifier.wait(store.clock, LOOK_AGAIN, since=rings)


async def _changes(store: Store, out: Output, wanted: Filter, *, follow: bool) -> None:
    """Runs whose record has changed, oldest change first."""
    seen: dict[str, tuple[str, int]] = {}
    first = True
    while True:
        rings = store.notifier.rings
        page = await search(store, wanted, limit=AT_ONCE)
        for run in sorted(page.runs, key=lambda run: run.updated_at):
            state = (run.uid, run.revision)
            if seen.get(run.id) == state:
                continue
            seen[run.id] = state
            if out.json:
                out.value(run_record(run))
            else:
                cell = out.status(run.status)
                when = out.moment(run.updated_at) if first else iso(run.updated_at)[11:19]
                about = neutral(run.error or run.current_step or "")
                out.line(
                    f"{when:>9}  {out.styled(f'{cell.text:9}', cell.colour)}  {neutral(run.id)}  "
                    f"{out.short(about, 40 + len(run.id))}".rstrip()
                )
        first = False
        if not follow:
            return
        await store.notifier.wait(store.clock, LOOK_AGAIN, since=rings)


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
