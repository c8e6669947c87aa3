"""`outlast export`: a run as one file."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import click

from outlast.cli.completing import RUN
from outlast.cli.exports import write
from outlast.cli.finding import find_run
from outlast.cli.progress import Progress
from outlast.cli.redaction import Redaction
from outlast.cli.session import Session, with_session
from outlast.cli.text import neutral
from outlast.transfer import gather


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
        runs = await gather(store, run.id, progress.at)
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
