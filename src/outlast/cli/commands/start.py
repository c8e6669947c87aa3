"""`outlast start` and `outlast fork`: create runs."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from outlast.app import App
from outlast.cli.app_runner import load_app
from outlast.cli.arguments import RUN, STEP, WORKFLOW, attributes_of, find_run, json_of
from outlast.cli.main import Exit
from outlast.cli.output import Output, neutral, neutral_lines
from outlast.cli.session import Session, client_of, with_session
from outlast.client import Client, RunHandle
from outlast.client.client import StartOptions
from outlast.codecs.chain import escape
from outlast.errors import NotFound, RunFailed
from outlast.model.ids import new_id
from outlast.ports.store import Store


@click.command("start")
@click.argument("name", metavar="WORKFLOW", type=WORKFLOW)
@click.option("--app", "named", metavar="MODULE:APP", help="The app with the workflow's code.")
@click.option(
    "--input",
    "given",
    default="{}",
    metavar="JSON",
    help="Its arguments by name, as JSON; @file, or - for standard input.",
)
@click.option(
    "--id", "run_id", metavar="ID", help="The id of the run; a repeated start with it does nothing."
)
@click.option(
    "--attr", "attributes", multiple=True, metavar="NAME=VALUE", help="An attribute of the run."
)
@click.option(
    "--signal",
    "signalled",
    metavar="NAME=JSON",
    help="A signal to start with; a run that has the id and is open gets it.",
)
@click.option(
    "--wait", is_flag=True, help="Run it and its children here, nothing else, and print its result."
)
@click.option("--timeout", type=float, metavar="SECONDS", help="With --wait: how long to wait.")
@with_session
async def start_command(
    session: Session,
    *,
    name: str,
    named: str | None,
    given: str,
    run_id: str | None,
    attributes: tuple[str, ...],
    signalled: str | None,
    wait: bool,
    timeout: float | None,
) -> None:
    """Start a run. Without --wait a worker executes it.

    \b
      outlast start checkout --app shop:app --input '{"order": "o-1"}'
      outlast start checkout --app shop.py --input @order.json --id o-1 --wait
      outlast start checkout --app shop.py --input @order.json --id o-1 --signal paid=true
    """
    input = _arguments(given)
    found = attributes_of(attributes)
    app = load_app(named, session.place.url if session.store_given else None)
    options: StartOptions = {"id": run_id, "on_conflict": "fail", "attributes": found}
    if signalled is not None:
        signal, _, value = signalled.partition("=")
        options["signal"] = signal, json_of(value or "null", "--signal")
        options["on_conflict"] = "attach"
    if not wait:
        async with app.store:
            run = await app.start(name, kwargs=input, here=False, **options)
        if session.out.json:
            session.out.value({"id": run.id, "new": run.is_new})
        else:
            session.out.line(run.id)
        return
    options["id"] = chosen = run_id or new_id()
    app.execute_only(chosen)
    async with app:
        run = await app.start(name, kwargs=input, here=False, **options)
        session.out.note(f"{run.id} is running here, and nothing else")
        await _wait(app, session.out, run.id, timeout)


def _arguments(given: str) -> dict[str, Any]:
    """Arguments by name as JSON that the code will read by its annotations."""
    input = json_of(given, "--input")
    if not isinstance(input, dict):
        raise click.UsageError(
            f"--input is a {type(input).__name__}: give the arguments by name, as one JSON object"
        )
    return {name: escape(msgspec.json.encode(value)) for name, value in input.items()}


async def _wait(app: App, out: Output, run_id: str, timeout: float | None) -> None:
    try:
        await app.get(run_id).result(timeout=timeout)
    except RunFailed as failed:
        click.echo(f"outlast: {neutral_lines(str(failed))}", err=True)
        raise SystemExit(Exit.RUN_FAILED) from failed
    run = await app.store.get(run_id)
    if out.json:
        out.value({"id": run.id, "status": run.status, "result": run.result})
    else:
        out.line(neutral(bytes(run.result or b"null").decode()))


@click.command("fork")
@click.argument("run_id", metavar="RUN", type=RUN)
@click.argument("step", type=STEP)
@click.option("--id", "fork_id", metavar="ID", help="The id of the new run.")
@click.option(
    "--input",
    "given",
    metavar="JSON",
    help="Arguments to replace, by name, as JSON; needs --app.",
)
@click.option("--app", "named", metavar="MODULE:APP", help="The app with the workflow's code.")
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
    """Create a new run with the history of RUN up to the call of STEP. A worker continues it.

    \b
      outlast fork order-1 ship
      outlast fork order-1 ship --id order-1-again --app shop:app --input '{"city": "Porto"}'
    """
    if given is None:
        async with session.store() as store:
            forked = await _fork(client_of(store), store, run_id, step, fork_id, None)
    else:
        input = _arguments(given)
        app: App = load_app(named, session.place.url if session.store_given else None)
        async with app.store:
            forked = await _fork(app.client, app.store, run_id, step, fork_id, input)
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
        return await client.get(run.id).fork(step, id=fork_id, input=input)
    except NotFound as missing:
        if missing.kind != "step":
            raise
        names = dict.fromkeys(e.step_name for e in await store.history(run.id) if e.step_name)
        raise click.UsageError(
            f"run {run.id!r} has no step {step!r}; it has {', '.join(map(neutral, names)) or 'none'}"
        ) from missing
