"""`outlast ls`: list runs."""

from __future__ import annotations

from operator import attrgetter
from shlex import quote

import click

from outlast.cli.output import Cell, Column, Output, Progress, length, neutral
from outlast.cli.run_views import run_record
from outlast.cli.session import Session, with_session
from outlast.model.query import Order, check_limit, order_of
from outlast.model.run import Run
from outlast.ports.store import Store
from outlast.query import Filter, all_matching, best_order, count, parse, search

SORTED_AT_MOST = 10_000
ORDERS = {order.value: order for order in Order}
"""Orders for which stores have an index; other columns are sorted in this process."""
OTHERS = ("id", "workflow", "status")
SORTS = ("created", "updated", *OTHERS)


@click.command("ls")
@click.argument("query", nargs=-1)
@click.option("-n", "--limit", default=20, show_default=True, help="The maximum number of runs.")
@click.option("--after", metavar="CURSOR", help="Continue after the previous page.")
@click.option("--count", "counted", is_flag=True, help="Print only the number.")
@click.option(
    "--sort",
    type=click.Choice([*SORTS, *(f"-{name}" for name in SORTS)]),
    help="Sort ascending by this column; with - descending. The default is the newest first, or the last "
    "change first if the query is about the time of the last change.",
)
@click.option(
    "--attr", "attributes", multiple=True, metavar="NAME", help="Show an attribute as a column."
)
@with_session
async def ls_command(
    session: Session,
    *,
    query: tuple[str, ...],
    limit: int,
    after: str | None,
    counted: bool,
    sort: str | None,
    attributes: tuple[str, ...],
) -> None:
    """List runs, newest first.

    \b
      outlast ls
      outlast ls status:waiting --sort updated
      outlast ls status:failed workflow:checkout 'age>1d'
      outlast ls 'attr.tenant=acme error~"timeout" not (status:cancelled or id:test-*)'
    """
    wanted = parse(" ".join(query))
    check_limit(limit)
    in_order = None if sort is None else ORDERS.get(sort)
    if sort is not None and in_order is None and after is not None:
        raise click.UsageError(
            f"--after works in the order of creation or of the last change, not with --sort {sort}: omit "
            "--after, or sort by created or updated"
        )
    async with session.store() as store:
        if counted:
            progress = Progress("looked at", None, "runs")
            number = await count(store, wanted, progress=progress.at)
            progress.end()
            if session.out.json:
                session.out.value({"count": number.number, "exact": not number.more})
            else:
                session.out.line(str(number))
            return
        if sort is not None and in_order is None:
            runs, cursor = await _sorted(store, wanted, sort, limit, session.out), None
        else:
            now = await store.now()
            order = in_order or (order_of(after) if after else best_order(wanted, now))
            page = await search(store, wanted, order=order, limit=limit, after=after, now=now)
            runs, cursor = page.runs, page.next
    show_runs(session.out, runs, attributes)
    if cursor is not None:
        _go_on(session.out, query, cursor, short=len(runs) < limit)


def show_runs(out: Output, runs: list[Run], attributes: tuple[str, ...] = ()) -> None:
    """Runs as a table, or as JSON lines for programs."""
    if out.json:
        for run in runs:
            out.value(run_record(run))
        return
    if not runs:
        out.note("no run matches")
        return
    columns = [
        Column("ID", 12),
        Column("STATUS"),
        Column("WORKFLOW", 8, 1),
        *(Column(name.upper(), 4, 2) for name in attributes),
        Column("AGE" if not out.utc else "CREATED", None, 2),
        Column("TOOK", None, 4),
        Column("NOW", 12, 3),
    ]
    out.table(columns, [_row(out, run, attributes) for run in runs])


def _row(out: Output, run: Run, attributes: tuple[str, ...]) -> list[Cell]:
    took = ""
    if run.ended_at is not None:
        took = length((run.ended_at - run.created_at).total_seconds())
    age = out.moment(run.created_at).removesuffix(" ago")
    return [
        Cell(run.id, "bright_white"),
        out.status(run.status),
        Cell(run.workflow),
        *(Cell(str(run.attributes.get(name, ""))) for name in attributes),
        Cell(age),
        Cell(took),
        Cell(_doing(run), "red" if run.error else None),
    ]


def _doing(run: Run) -> str:
    if run.error:
        return run.error
    if run.status.terminal:
        return ""
    if run.wait_kind:
        return f"waits: {run.wait_kind}"
    return run.current_step or ""


async def _sorted(store: Store, wanted: Filter, sort: str, limit: int, out: Output) -> list[Run]:
    found: list[Run] = []
    progress = Progress("ls", None)
    async for run in all_matching(store, wanted):
        if len(found) == SORTED_AT_MOST:
            out.note(f"only the newest {SORTED_AT_MOST:,} that match are sorted")
            break
        found.append(run)
        progress.at(len(found))
    progress.end()
    key = attrgetter(sort.removeprefix("-"))
    return sorted(found, key=key, reverse=sort.startswith("-"))[:limit]


def _go_on(out: Output, query: tuple[str, ...], cursor: str, *, short: bool) -> None:
    why = "not all runs were searched" if short else "there are more"
    asked = " ".join(query)
    asked = f" {quote(neutral(asked))}" if asked else ""
    out.note(f"{why}: outlast ls{asked} --after {cursor}")
