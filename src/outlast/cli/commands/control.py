"""`outlast cancel | terminate | pause | resume | retry | rm`, for named runs or all that match, and
`outlast signal | update`, for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from outlast.cli.arguments import RUN, find_run, json_of
from outlast.cli.bulk import Action, do_to_matching, do_to_named
from outlast.cli.output import neutral, to_json
from outlast.cli.session import Session, client_of, with_session
from outlast.errors import InvalidValue
from outlast.model.run import Run, Status
from outlast.ports.store import Store

Make = Callable[[Store, dict[str, Any]], Action]
Refuses = Callable[[Run, dict[str, Any]], bool]


def _command(
    verb: str, make: Make, refuses: Refuses, help: str, *options: Callable[..., Any]
) -> click.Command:
    """A command on runs named by id, or on all that match a query."""

    @with_session
    async def act(
        session: Session,
        *,
        run_ids: tuple[str, ...],
        where: str | None,
        dry_run: bool,
        yes: bool,
        **given: Any,
    ) -> None:
        if bool(run_ids) is (where is not None):
            raise click.UsageError(f"{verb} needs either run ids or --where QUERY, not both")
        if dry_run and where is None:
            raise click.UsageError("--dry-run needs --where")
        async with session.store() as store:
            action = make(store, given)
            if where is None:
                await do_to_named(store, session.out, run_ids, verb, action)
                return
            await do_to_matching(
                session, store, where, verb, action,
                unfit=lambda run: refuses(run, given), dry_run=dry_run, yes=yes,
            )  # fmt: skip

    command = act
    for option in (
        *options,
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Only show which."),
        click.option("--where", metavar="QUERY", help="All runs that match, as for `outlast ls`."),
        click.argument("run_ids", metavar="[RUN]...", nargs=-1, type=RUN),
    ):
        command = option(command)
    return click.command(verb, help=help)(command)


def _cancel(store: Store, given: dict[str, Any]) -> Action:
    client = client_of(store)

    async def act(run: Run) -> None:
        await client.get(run.id).cancel(given["reason"] or "cancelled")

    return act


def _terminate(store: Store, given: dict[str, Any]) -> Action:
    client = client_of(store)

    async def act(run: Run) -> None:
        await client.get(run.id).terminate(given["reason"] or "terminated")

    return act


def _pause(store: Store, _: dict[str, Any]) -> Action:
    client = client_of(store)

    async def act(run: Run) -> None:
        await client.get(run.id).pause()

    return act


def _resume(store: Store, given: dict[str, Any]) -> Action:
    client = client_of(store)
    value = json_of(given["value"], "--value")

    async def act(run: Run) -> None:
        await client.get(run.id).resume(value, ask=given["ask"])

    return act


def _retry(store: Store, _: dict[str, Any]) -> Action:
    client = client_of(store)

    async def act(run: Run) -> str | None:
        await client.get(run.id).retry()
        return f"from {run.recover_to}" if run.recover_to else None

    return act


def _rm(store: Store, given: dict[str, Any]) -> Action:
    client = client_of(store)

    async def act(run: Run) -> str | None:
        # The record may be old: since then, the id may have a new life.
        there = await store.find_one(run.id)
        if there is None:
            return "was already removed"
        if there.uid != run.uid:
            raise InvalidValue(
                f"run {run.id!r} has been replaced since the search, and is {there.status}: it is kept. "
                "Check it, and remove it by its id"
            )
        for seen in (there, run):
            if not seen.status.terminal and not given["force"]:
                raise InvalidValue(
                    f"run {run.id!r} is {seen.status}: cancel it first, or remove it with --force"
                )
        gone = await client.get(run.id).delete(uid=run.uid, force=given["force"])
        return None if gone else "was already removed"

    return act


def _has_ended(run: Run, _: dict[str, Any]) -> bool:
    return run.status.terminal


def _rests_not(run: Run, _: dict[str, Any]) -> bool:
    waits = run.status is Status.WAITING and run.halt_data is None and not run.is_parked
    return run.status.terminal or waits


def _has_not_failed(run: Run, _: dict[str, Any]) -> bool:
    return run.status is not Status.FAILED


def _lives(run: Run, given: dict[str, Any]) -> bool:
    return not run.status.terminal and not given["force"]


_reason = click.option("--reason", metavar="TEXT", help="Why; recorded in the history.")
_value = click.option("--value", default="null", metavar="JSON", help="The answer to a halt.")
_ask = click.option(
    "--ask", metavar="ID", help="Which question to answer, if the run asks several."
)
_force = click.option("--force", is_flag=True, help="Also runs that have not ended.")

cancel_command = _command(
    "cancel",
    _cancel,
    _has_ended,
    """Ask runs to stop: their code is cancelled, and completed steps are compensated.

    \b
      outlast cancel order-1
      outlast cancel --where 'workflow:checkout attr.tenant=acme' --dry-run
    """,
    _reason,
)
terminate_command = _command(
    "terminate",
    _terminate,
    _has_ended,
    """End runs immediately, without their code: nothing is cancelled or compensated.

    \b
      outlast terminate order-1 --reason 'stuck since Monday'
    """,
    _reason,
)
pause_command = _command(
    "pause",
    _pause,
    _has_ended,
    """Pause runs after the steps that are executing, until they are resumed.

    \b
      outlast pause order-1
      outlast pause --where 'workflow:import status:running' --yes
    """,
)
resume_command = _command(
    "resume",
    _resume,
    _rests_not,
    """Resume paused runs, answer a halt with a value, or retry runs whose code was corrected.

    \b
      outlast resume order-1 --value '{"approved": true}'
      outlast resume --where 'status:paused'
    """,
    _value,
    _ask,
)
retry_command = _command(
    "retry",
    _retry,
    _has_not_failed,
    """Retry failed runs from the step that failed. Completed steps are not repeated.

    \b
      outlast retry order-1
      outlast retry --where 'status:failed age<1h error~"timeout"'
    """,
)
rm_command = _command(
    "rm",
    _rm,
    _lives,
    """Delete runs with their history, their children and all their contents.

    \b
      outlast rm order-1
      outlast rm --where 'status:completed age>30d' --dry-run
    """,
    _force,
)


@click.command("signal")
@click.argument("run_id", metavar="RUN", type=RUN)
@click.argument("name")
@click.option(
    "--value",
    "given",
    default="null",
    metavar="JSON",
    help="The value to send; @file, or - for standard input.",
)
@click.option("--dedup", metavar="KEY", help="Idempotency key: accepted once.")
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
        await client_of(store).get(run.id).signal(name, value, dedup=dedup)
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
    help="The value to send; @file, or - for standard input.",
)
@click.option("--dedup", metavar="KEY", help="Idempotency key: executed once, same answer.")
@click.option("--timeout", type=float, default=30.0, show_default=True, metavar="SECONDS")
@with_session
async def update_command(
    session: Session, *, run_id: str, name: str, given: str, dedup: str | None, timeout: float
) -> None:
    """Send an update to a run (`outlast.on_update`) and print the answer. A worker must be running.

    \b
      outlast update order-1 set_address --value '{"city": "Lisbon"}'
    """
    value = json_of(given, "--value")
    async with session.store() as store:
        run = await find_run(store, run_id, certain=True)
        answer = (
            await client_of(store).get(run.id).update(name, value, dedup=dedup, timeout=timeout)
        )
    if session.out.json:
        session.out.value({"id": run.id, "update": name, "answer": answer})
    else:
        session.out.line(to_json(answer))
