"""`outlast fork`: a new run that shares another one's past up to a step."""

from __future__ import annotations

import click

from outlast.app import App
from outlast.cli.apps import load_app
from outlast.cli.completing import RUN, STEP
from outlast.cli.finding import find_run
from outlast.cli.given import json_of
from outlast.cli.session import Session, client_of, with_session
from outlast.cli.text import neutral
from outlast.client import Client, RunHandle
from outlast.errors import NotFound
from outlast.ports.store import Store


@click.command("fork")
@click.argument("run_id", metavar="RUN", type=RUN)
@click.argument("step", type=STEP)
@click.option("--id", "fork_id", metavar="ID", help="The id of the new run.")
@click.option(
    "--input",
    "given",
    metavar="JSON",
    help="Arguments, by name, that are to be others; needs --app.",
)
@click.option("--app", "named", metavar="MODULE:APP", help="Where its code is.")
@with_session
async def fork_command(
    session: Session,
    *,
    run_id: str,
    step: str,
    fork_id: str | None,
    given: str | None,
    named: str | None,
) -> None:
    """Begin a new run with the history of RUN up to where STEP was asked for. A worker goes on with it.

    \b
      outlast fork order-1 ship
      outlast fork order-1 ship --id order-1-again --app shop:app --input '{"city": "Porto"}'
    """
    if given is None:
        async with session.store() as store:
            forked = await _fork(client_of(store), store, run_id, step, fork_id, None)
    else:
        input = json_of(given, "--input")
        app: App = load_app(named, session.place.url if session.store_given else None)
        async with app.store:
            forked = await _fork(app, app.store, run_id, step, fork_id, input)
    if session.out.json:
        session.out.value({"id": forked.id, "step": step})
    else:
        session.out.line(neutral(forked.id))


async def _fork(
    client: Client,
    store: Store,
    run_id: str,
    step: str,
    fork_id: str | None,
    input: dict[str, object] | None,
) -> RunHandle[object]:
    run = await find_run(store, run_id, certain=True)
    try:
        return await client.fork(run.id, step, id=fork_id, input=input)
    except NotFound as missing:
        if missing.kind != "step":
            raise
        names = dict.fromkeys(e.step_name for e in await store.history(run.id) if e.step_name)
        raise click.UsageError(
            f"run {run.id!r} has no step {step!r}; it has {', '.join(map(neutral, names)) or 'none'}"
        ) from missing
