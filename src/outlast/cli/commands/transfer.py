"""`outlast export`, `outlast import` and `outlast move`: a run as a file, and runs to another store."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from shlex import quote

import click

from outlast.cli.arguments import RUN, confirm, find_run
from outlast.cli.export_file import Redaction, read, write
from outlast.cli.main import Exit
from outlast.cli.output import Output, Progress, neutral
from outlast.cli.session import Session, StoreChoice, with_session
from outlast.model.run import MOVED
from outlast.ports.store import Store
from outlast.query import Filter, all_matching, count, parse
from outlast.transfer import (
    ImportResult,
    MoveResult,
    address_of,
    export_runs,
    import_runs,
    move_runs,
)
from outlast.urls import resolve


@click.command("export")
@click.argument("run_id", metavar="RUN", type=RUN)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    help="The file to write, instead of standard output.",
)
@click.option(
    "--redact",
    "names",
    multiple=True,
    metavar="FIELD",
    help="Redact a field of user values, at any depth. May be repeated.",
)
@with_session
async def export_command(
    session: Session, *, run_id: str, target: str | None, names: tuple[str, ...]
) -> None:
    """Write a run with all its contents (history, facts, inbox, queued steps, timers) and its children to
    one file. The run is not changed.

    \b
      outlast export order-1 -o order-1.outlast
      outlast export order-1 --redact card --redact email > order-1.outlast
    """
    async with session.store() as store:
        run = await find_run(store, run_id)
        progress = Progress("export", None)
        runs = await export_runs(store, run.id, progress.at)
        progress.end()
        written = io.BytesIO()
        write(written, runs, Redaction(names), await store.now())
    if target is None:
        if sys.stdout.isatty():
            raise click.UsageError("name a file with -o FILE, or redirect the output")
        sys.stdout.buffer.write(written.getvalue())
        return
    path = Path(target)
    # Written to a temporary file first: an existing file is never replaced by an incomplete one.
    partial = path.with_name(path.name + ".partial")
    descriptor = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(written.getvalue())
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    many = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    session.out.note(f"wrote {neutral(run.id)} ({many}) to {path}")


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--live", is_flag=True, help="Let runs that had not ended continue here.")
@with_session
async def import_command(session: Session, *, file: Path, live: bool) -> None:
    """Restore a run from a file, under its own id, with all its contents. Runs that had not ended are
    paused, so that nothing is executed twice; `outlast resume` or --live continues them. The command is
    idempotent: after an interruption, repeat it.

    \b
      outlast import order-1.outlast --store sqlite:///copy.db
      outlast import order-1.outlast --store postgresql://localhost/shop --live
    """
    reading = Progress("read", None, "lines")
    with file.open("rb") as opened:
        head, runs = read(opened, file.name, reading.at)
    reading.end()
    if live and head.redacted:
        raise click.UsageError(
            f"{file.name} has redacted fields ({', '.join(map(neutral, head.redacted))}), with which the run "
            "cannot continue. Import it without --live to inspect it"
        )
    async with session.store(create=True) as store:
        progress = Progress("import", len(runs))
        restored = await import_runs(store, runs, live=live, progress=progress.at)
        progress.end()
    _report_import(session, head.root, restored)


def _report_import(session: Session, root: str, restored: ImportResult) -> None:
    out, waiting = session.out, restored.waiting
    if out.json:
        report = {
            "id": root,
            "runs": restored.runs,
            "written": restored.written,
            "waiting": waiting,
        }
        out.value(report)
    elif restored.written:
        many = "1 run" if restored.runs == 1 else f"{restored.runs:,} runs"
        out.line(f"{neutral(root)} is restored ({many}) in {session.place.shown}")
    else:
        out.line(f"{neutral(root)} is already in {session.place.shown}: nothing was changed")
    if waiting and restored.written:
        steps = "1 queued step waits" if waiting == 1 else f"{waiting:,} queued steps wait"
        out.note(f"{steps} as dead tasks. To give them to workers:")
        for queue in restored.queues:
            out.note(f"  outlast dead redrive {quote(neutral(queue))}")


@click.command("move")
@click.argument("query", nargs=-1)
@click.option(
    "--from", "source", metavar="URL", help="The source store; the default is as for --store."
)
@click.option("--to", "target", metavar="URL", required=True, help="The target store.")
@click.option("--dry-run", is_flag=True, help="Only list them.")
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
    """Move runs to another store, all or those that match, with their families. Workers may run on both:
    a running run is interrupted and continues there. A client that asks for it here gets its new address.
    The command is idempotent: after an interruption, repeat it, and it completes the moves.

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
        resolve(target)  # raises for an unknown kind of URL
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
                "add --yes to move without confirmation, or --dry-run to list them",
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
    _report_moves(session, moves, there)


async def _dry(store: Store, out: Output, wanted: Filter) -> None:
    """List what would move. The target is not opened, because that would create it."""
    number = 0
    async for run in all_matching(store, wanted):
        if run.wait_kind != MOVED or run.moved_to is None:
            number += 1
            if out.json:
                out.value({"id": run.id, "status": run.status, "would": "move"})
            else:
                out.line(f"would move  {neutral(run.id)}  {run.status}")
    out.note(f"{number:,} in total; nothing was changed")


def _report_moves(session: Session, moves: MoveResult, there: StoreChoice) -> None:
    out = session.out
    for run_id, reason in moves.refused.items():
        out.note(f"{neutral(run_id)} is not moved: {reason}")
    if out.json:
        out.value({"moved": moves.runs, "families": moves.families, "refused": len(moves.refused)})
    else:
        many = "run is" if moves.runs == 1 else "runs are"
        out.line(f"{moves.runs:,} {many} in {there.shown} now")
    if moves.refused:
        raise SystemExit(Exit.REFUSED)
