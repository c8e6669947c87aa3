"""`outlast export` and `outlast import`: a run as a file, and back."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from shlex import quote

import click

from outlast.cli.arguments import RUN, find_run
from outlast.cli.export_file import Redaction, read, write
from outlast.cli.output import Progress, neutral
from outlast.cli.session import Session, with_session
from outlast.transfer import ImportResult, export_runs, import_runs


@click.command("export")
@click.argument("run_id", metavar="RUN", type=RUN)
@click.option(
    "-o", "--output", "target", metavar="FILE", help="Where to; standard output otherwise."
)
@click.option(
    "--redact",
    "names",
    multiple=True,
    metavar="FIELD",
    help="Blot out a field of users' values, however deep. May be repeated.",
)
@with_session
async def export_command(
    session: Session, *, run_id: str, target: str | None, names: tuple[str, ...]
) -> None:
    """Write a run with all it owns (history, facts, inbox, queued steps, timers) and its children as
    one file. The run is not touched.

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
            raise click.UsageError("name a file with -o FILE, or send the output somewhere")
        sys.stdout.buffer.write(written.getvalue())
        return
    path = Path(target)
    # Whole or not at all: a file that is there is not replaced by half of another.
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
@click.option("--live", is_flag=True, help="Let runs that had not ended go on here.")
@with_session
async def import_command(session: Session, *, file: Path, live: bool) -> None:
    """Restore a run from a file, under its own id, with all it owned. Runs that had not ended come in
    paused, so that nothing is done twice; `outlast resume` or --live lets them go on. Killed, it is
    simply started again: what has come is not brought twice.

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
            f"{file.name} has fields blotted out ({', '.join(map(neutral, head.redacted))}): it "
            "cannot go on with those. Import it without --live, to look at it"
        )
    async with session.store(create=True) as store:
        progress = Progress("import", len(runs))
        restored = await import_runs(store, runs, live=live, progress=progress.at)
        progress.end()
    _tell(session, head.root, restored)


def _tell(session: Session, root: str, restored: ImportResult) -> None:
    out, waiting = session.out, restored.waiting
    if out.json:
        told = {"id": root, "runs": restored.runs, "written": restored.written, "waiting": waiting}
        out.value(told)
    elif restored.written:
        many = "1 run" if restored.runs == 1 else f"{restored.runs:,} runs"
        out.line(f"{neutral(root)} is restored ({many}) in {session.place.shown}")
    else:
        out.line(f"{neutral(root)} is in {session.place.shown} already: nothing was changed")
    if waiting and restored.written:
        steps = "1 queued step waits" if waiting == 1 else f"{waiting:,} queued steps wait"
        out.note(f"{steps} among the dead. To let workers have what waits there:")
        for queue in restored.queues:
            out.note(f"  outlast dead redrive {quote(neutral(queue))}")
