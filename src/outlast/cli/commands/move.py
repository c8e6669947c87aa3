"""`outlast move`: runs from one store to another, while workers run."""

from __future__ import annotations

import click

from outlast.cli.arguments import confirm
from outlast.cli.main import Exit
from outlast.cli.output import Output, Progress, neutral
from outlast.cli.session import Session, StoreChoice, with_session
from outlast.model.run import MOVED
from outlast.ports.store import Store
from outlast.query import Filter, all_matching, count, parse
from outlast.transfer import MoveResult, address_of, move_runs
from outlast.urls import resolve


@click.command("move")
@click.argument("query", nargs=-1)
@click.option(
    "--from", "source", metavar="URL", help="The store they are in, else as --store says."
)
@click.option("--to", "target", metavar="URL", required=True, help="The store they go to.")
@click.option("--dry-run", is_flag=True, help="Only show which.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@with_session
async def move_command(
    session: Session,
    *,
    query: tuple[str, ...],
    source: str | None,
    target: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Move runs to another store, all or those that match, with their families. Workers may run on
    both: a run that is under way is interrupted and goes on there. Whoever asks for it here is told
    where it is. Killed or interrupted, it is simply started again, and finishes what it has begun.

    \b
      outlast move --from sqlite:///shop.db --to postgresql://localhost/shop
      outlast move --from sqlite:///shop.db --to redis://localhost/0 'workflow:checkout status:open'
    """
    wanted, out = parse(" ".join(query)), session.out
    here = StoreChoice(source, "--from") if source else session.place
    there = StoreChoice(target, "--to")
    if here.shown == there.shown:
        raise click.UsageError(f"--from and --to are both {here.shown}: name another store")
    if dry_run:
        resolve(target)  # a name that no store has is told now
        async with session.store(at=here) as old:
            await _dry(old, out, wanted)
        return
    async with session.store(at=here) as old, session.store(at=there, create=True) as new:
        now = await old.now()
        number_of = await count(old, wanted, now=now)
        out.note(
            f"{number_of} {'run matches' if str(number_of) == '1' else 'runs match'} in {here.shown}"
        )
        if not yes:
            await confirm(
                f"move them to {there.shown}?",
                "add --yes to move without being asked, or --dry-run",
            )
        progress = Progress("move", None if number_of.more else number_of.number)
        moves = await move_runs(
            old,
            new,
            wanted,
            address=address_of(target),
            now=now,
            progress=lambda moves: progress.at(moves.runs),
        )
        progress.end()
    _tell(session, moves, there)


async def _dry(store: Store, out: Output, wanted: Filter) -> None:
    """Show which would move. Where they would go to is not opened: that would make it."""
    number = 0
    async for run in all_matching(store, wanted):
        if run.wait_kind != MOVED or run.moved_to is None:
            number += 1
            if out.json:
                out.value({"id": run.id, "status": run.status, "would": "move"})
            else:
                out.line(f"would move  {neutral(run.id)}  {run.status}")
    out.note(f"{number:,} in all; nothing was changed")


def _tell(session: Session, moves: MoveResult, there: StoreChoice) -> None:
    out = session.out
    for run_id, reason in moves.refused.items():
        out.note(f"{neutral(run_id)} stays: {reason}")
    if out.json:
        out.value({"moved": moves.runs, "families": moves.families, "refused": len(moves.refused)})
    else:
        many = "run is" if moves.runs == 1 else "runs are"
        out.line(f"{moves.runs:,} {many} in {there.shown} now")
    if moves.refused:
        raise SystemExit(Exit.REFUSED)
