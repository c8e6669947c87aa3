"""`outlast signal` and `outlast update`: tell a run something."""

from __future__ import annotations

import click

from outlast.cli.completing import RUN
from outlast.cli.finding import find_run
from outlast.cli.given import json_of
from outlast.cli.session import Session, client_of, with_session
from outlast.cli.text import neutral, to_json


@click.command("signal")
@click.argument("run_id", metavar="RUN", type=RUN)
@click.argument("name")
@click.option(
    "--value",
    "given",
    default="null",
    metavar="JSON",
    help="What to send; @file, or - for standard input.",
)
@click.option("--dedup", metavar="KEY", help="The same key is taken once.")
@with_session
async def signal_command(
    session: Session, *, run_id: str, name: str, given: str, dedup: str | None
) -> None:
    """Send a signal to a run.

    \b
      outlast signal order-1 approved --value true
    """
    value = json_of(given, "--value")
    async with session.store() as store:
        run = await find_run(store, run_id, certain=True)
        await client_of(store).signal(run.id, name, value, dedup=dedup)
    if session.out.json:
        session.out.value({"id": run.id, "signal": name, "sent": True})
    else:
        session.out.line(f"sent {neutral(name)} to {neutral(run.id)}")


@click.command("update")
@click.argument("run_id", metavar="RUN", type=RUN)
@click.argument("name")
@click.option(
    "--value",
    "given",
    default="null",
    metavar="JSON",
    help="What to ask with; @file, or - for standard input.",
)
@click.option("--dedup", metavar="KEY", help="The same key is done once and answered alike.")
@click.option("--timeout", type=float, default=30.0, show_default=True, metavar="SECONDS")
@with_session
async def update_command(
    session: Session, *, run_id: str, name: str, given: str, dedup: str | None, timeout: float
) -> None:
    """Ask a run for something (`outlast.on_update`) and print its answer. A worker must be running.

    \b
      outlast update order-1 set_address --value '{"city": "Lisbon"}'
    """
    value = json_of(given, "--value")
    async with session.store() as store:
        run = await find_run(store, run_id, certain=True)
        answer = await client_of(store).update(run.id, name, value, dedup=dedup, timeout=timeout)
    if session.out.json:
        session.out.value({"id": run.id, "update": name, "answer": answer})
    else:
        session.out.line(to_json(answer))
