"""`outlast start`: begin a run."""

from __future__ import annotations

import click

from outlast.app import App
from outlast.cli.apps import load_app
from outlast.cli.codes import Exit
from outlast.cli.completing import WORKFLOW
from outlast.cli.given import attributes_of, json_of
from outlast.cli.output import Output
from outlast.cli.session import Session, with_session
from outlast.cli.text import neutral, neutral_lines
from outlast.client.client import StartOptions
from outlast.errors import RunFailed


@click.command("start")
@click.argument("name", metavar="WORKFLOW", type=WORKFLOW)
@click.option("--app", "named", metavar="MODULE:APP", help="Where its code is.")
@click.option(
    "--input",
    "given",
    default="{}",
    metavar="JSON",
    help="Its arguments by name; @file, or - for standard input.",
)
@click.option(
    "--id", "run_id", metavar="ID", help="The id of the run; also the key by which it starts once."
)
@click.option(
    "--attr", "attributes", multiple=True, metavar="NAME=VALUE", help="An attribute to find it by."
)
@click.option("--wait", is_flag=True, help="Run it here, with the app, and print its result.")
@click.option("--timeout", type=float, metavar="SECONDS", help="With --wait: how long at most.")
@with_session
async def start_command(
    session: Session,
    *,
    name: str,
    named: str | None,
    given: str,
    run_id: str | None,
    attributes: tuple[str, ...],
    wait: bool,
    timeout: float | None,
) -> None:
    """Start a run. Without --wait it is left to a worker.

    \b
      outlast start checkout --app shop:app --input '{"order": "o-1"}'
      outlast start checkout --app shop.py --input @order.json --id o-1 --wait
    """
    input = json_of(given, "--input")
    if not isinstance(input, dict):
        raise click.UsageError(
            f"--input is a {type(input).__name__}: give the arguments by name, as one JSON object"
        )
    found = attributes_of(attributes)
    app = load_app(named, session.place.url if session.store_given else None)
    options: StartOptions = {"id": run_id, "on_conflict": "fail", "attributes": found}
    if not wait:
        async with app.store:
            run = await app.start(name, kwargs=input, here=False, **options)
        session.out.value({"id": run.id}) if session.out.json else session.out.line(run.id)
        return
    async with app:
        run = await app.start(name, kwargs=input, here=False, **options)
        session.out.note(f"{run.id} is running here")
        await _wait(app, session.out, run.id, timeout)


async def _wait(app: App, out: Output, run_id: str, timeout: float | None) -> None:
    try:
        await app.result(run_id, timeout=timeout)
    except RunFailed as failed:
        click.echo(f"outlast: {neutral_lines(str(failed))}", err=True)
        raise SystemExit(Exit.RUN_FAILED) from failed
    run = await app.get(run_id)
    if out.json:
        out.value({"id": run.id, "status": run.status, "result": run.result})
    else:
        out.line(neutral(bytes(run.result or b"null").decode()))
