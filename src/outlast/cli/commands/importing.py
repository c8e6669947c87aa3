"""`outlast import`: a run from a file that `outlast export` wrote."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from outlast.cli.exports import read
from outlast.cli.progress import Progress
from outlast.cli.session import Session, with_session
from outlast.cli.text import neutral
from outlast.transfer import Restored, restore


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
        restored = await restore(store, runs, live=live, progress=progress.at)
        progress.end()
    _tell(session, head.root, restored)


def _tell(session: Session, root: str, restored: Restored) -> None:
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
