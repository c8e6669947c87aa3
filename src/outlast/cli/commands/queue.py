"""`outlast queues`, `outlast queue` and `outlast dead`: the queues of a store, the policy of one, and dead
tasks."""

from __future__ import annotations

import getpass
import socket
from contextlib import suppress
from typing import Any

import click

from outlast.cli.arguments import confirm
from outlast.cli.commands.worker import workers_of
from outlast.cli.output import Cell, Column, neutral
from outlast.cli.session import Session, with_session
from outlast.client.queues import Queues
from outlast.errors import InvalidValue, Unsupported
from outlast.model.query import check_limit
from outlast.model.queue_policy import QueuePolicy, Rate, scope_of
from outlast.ports.queue import Queue
from outlast.ports.store import Store

DEAD_AT_MOST = 1_000


@click.command("queues")
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@with_session
async def queues_command(session: Session, *, names: tuple[str, ...]) -> None:
    """Show queues: those that are named, or all that contain a task in any state or that a worker serves.

    \b
      outlast queues
      outlast queues default video
    """
    out = session.out
    rows = []
    async with session.store() as store:
        served: dict[str, int] = {}
        for worker, alive in await workers_of(store):
            for name in worker.queues if alive else ():
                served[name] = served.get(name, 0) + 1
        known = await queue_names(store, names)
        async with store.queue() as queue:
            for name in known:
                dead = len(await queue.dead(name, limit=DEAD_AT_MOST))
                rows.append((name, await queue.len(name), dead, served.get(name, 0)))
    if out.json:
        for name, ready, dead, workers in rows:
            out.value({"queue": name, "ready": ready, "dead": dead, "workers": workers})
        return
    columns = [Column("QUEUE", 8), Column("READY"), Column("DEAD"), Column("WORKERS", None, 1)]
    more = {DEAD_AT_MOST: f"{DEAD_AT_MOST}+"}
    out.table(
        columns,
        [
            [
                Cell(name),
                Cell(str(ready)),
                Cell(more.get(dead, str(dead)), "red" if dead else None),
                Cell(str(workers)),
            ]
            for name, ready, dead, workers in rows
        ],
    )


async def queue_names(store: Store, given: tuple[str, ...] = ()) -> list[str]:
    """The known queues: those given, or the default, those that contain a task in any state, and those
    that a worker serves."""
    if given:
        return sorted({*given})
    found = {"default"}
    for worker, alive in await workers_of(store):
        found |= set(worker.queues) if alive else set()
    async with store.queue() as queue:
        with suppress(Unsupported):  # an external queue does not list its names
            found |= set(await queue.names())
    return sorted(found)


@click.group("queue")
def queue_command() -> None:
    """The policy of a queue: concurrency, rate, fairness."""


@queue_command.command("show")
@click.argument("name")
@with_session
async def queue_show(session: Session, *, name: str) -> None:
    """Show the numbers of a queue, its policy, and its keys.

    \b
      outlast queue show mail
    """
    out = session.out
    async with session.store() as store:
        [stats] = await Queues(store).stats(name)
    if out.json:
        out.value(stats)
        return
    out.line(
        f"{stats.said('ready')} ready, {stats.said('in_flight')} in flight, "
        f"{stats.said('delayed')} delayed, {stats.said('dead')} dead"
    )
    if stats.oldest is not None:
        out.line(f"the oldest task has been ready since {out.moment(stats.oldest)}")
    if stats.blocked_by is not None:
        out.line(f"nothing starts now: {stats.blocked_by}", "yellow")
    for name_, value in _rules(stats.policy or QueuePolicy(queue=name)).items():
        out.line(f"{name_:<16} {value}")
    if stats.keys:
        columns = [Column("KEY", 8), Column("READY"), Column("IN FLIGHT"), Column("BLOCKED BY", 4)]
        out.table(
            columns,
            [
                [
                    Cell(one.key),
                    Cell(one.said("ready")),
                    Cell(one.said("in_flight")),
                    Cell(one.blocked_by or "", "yellow"),
                ]
                for one in stats.keys
            ],
        )


@queue_command.command("set")
@click.argument("name")
@click.option("--concurrency", metavar="N", help="At most N at once; `none` for no limit.")
@click.option("--key-concurrency", metavar="N", help="At most N of one key at once.")
@click.option("--rate", metavar="N/SECONDS", help="At most N start in any SECONDS.")
@click.option("--key-rate", metavar="N/SECONDS", help="The same for each key.")
@click.option(
    "--ageing", metavar="SECONDS", help="The waiting time that equals one priority level."
)
@click.option(
    "--weight", metavar="KEY=W", multiple=True, help="The share of a key; the default is 1."
)
@with_session
async def queue_set(session: Session, *, name: str, weight: tuple[str, ...], **given: Any) -> None:
    """Change the policy of a queue; limits that are not named stay. It applies to all workers at once.

    \b
      outlast queue set mail --concurrency 20 --key-concurrency 2
      outlast queue set mail --rate 100/60 --weight acme=3
      outlast queue set mail --concurrency none
    """
    rules = {key: _parsed(key, value) for key, value in given.items() if value is not None}
    async with session.store() as store:
        queues = Queues(store)
        if weight:
            rules["weights"] = {**(await queues.get(name)).weights, **dict(map(_weight, weight))}
        if not rules:
            raise InvalidValue("no limit is given: see `outlast queue set --help`")
        policy = await queues.change(name, by=_who(), **rules)
    _told(session, policy)


@queue_command.command("pause")
@click.argument("name")
@with_session
async def queue_pause(session: Session, *, name: str) -> None:
    """Start no task of a queue, for all workers at once; tasks in flight continue.

    \b
      outlast queue pause mail
    """
    async with session.store() as store:
        await Queues(store).pause(name, by=_who())
        _told(session, await Queues(store).get(name))


@queue_command.command("resume")
@click.argument("name")
@with_session
async def queue_resume(session: Session, *, name: str) -> None:
    """Resume a paused queue.

    \b
      outlast queue resume mail
    """
    async with session.store() as store:
        await Queues(store).resume(name, by=_who())
        _told(session, await Queues(store).get(name))


@queue_command.command("drop")
@click.argument("name")
@with_session
async def queue_drop(session: Session, *, name: str) -> None:
    """Remove the policy of a queue: it then has no limits.

    \b
      outlast queue drop mail
    """
    async with session.store() as store:
        await Queues(store).drop(name, by=_who())
    _told(session, QueuePolicy(queue=name))


@queue_command.command("log")
@click.argument("name")
@click.option("-n", "--limit", default=20, show_default=True)
@with_session
async def queue_log(session: Session, *, name: str, limit: int) -> None:
    """Show who changed the policy of a queue, the last change first.

    \b
      outlast queue log mail
    """
    out = session.out
    async with session.store() as store:
        changes = await Queues(store).changes(name, limit=limit)
    if out.json:
        for change in changes:
            out.value(change)
        return
    columns = [Column("WHEN"), Column("WHO", 8), Column("RULES", 10)]
    out.table(
        columns,
        [
            [
                Cell(out.moment(change.at)),
                Cell(change.by),
                Cell("none" if change.policy is None else _in_a_line(change.policy)),
            ]
            for change in changes
        ],
    )


def _told(session: Session, policy: QueuePolicy) -> None:
    if session.out.json:
        session.out.value(policy)
    else:
        session.out.line(f"{policy.queue}: {_in_a_line(policy)}")


def _rules(policy: QueuePolicy) -> dict[str, str]:
    """The limits of a policy as text."""
    found = {
        "concurrency": policy.concurrency,
        "key_concurrency": policy.key_concurrency,
        "rate": _rate(policy.rate),
        "key_rate": _rate(policy.key_rate),
        "ageing": policy.ageing,
        "weights": " ".join(f"{key}={weight:g}" for key, weight in policy.weights.items()) or None,
        "paused": "yes" if policy.paused else None,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _in_a_line(policy: QueuePolicy) -> str:
    return ", ".join(f"{name} {value}" for name, value in _rules(policy).items()) or "no limits"


def _rate(rate: Rate | None) -> str | None:
    return None if rate is None else f"{rate.limit}/{rate.per:g}"


def _parsed(name: str, text: str) -> object:
    """Parse a limit from the command line."""
    try:
        if text.lower() == "none":
            return None
        if name in ("rate", "key_rate"):
            limit, _, seconds = text.partition("/")
            return Rate(int(limit), float(seconds or 1))
        return float(text) if name == "ageing" else int(text)
    except ValueError:
        shape = "N/SECONDS, such as 100/60" if "rate" in name else "a number"
        option = "--" + name.replace("_", "-")
        raise InvalidValue(f"{option} {text!r} is not possible: use {shape}, or none") from None


def _weight(text: str) -> tuple[str, float]:
    key, equals, weight = text.rpartition("=")
    try:
        if not equals:
            raise ValueError
        return key, float(weight)
    except ValueError:
        raise InvalidValue(f"--weight {text!r} is not possible: use KEY=3") from None


def _who() -> str:
    """The author of a change in the audit: the user and the host."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"


@click.group("dead")
def dead_command() -> None:
    """Tasks that are no longer retried: list them, make them ready again, or delete them."""


@dead_command.command("ls")
@click.argument("queue", required=False)
@click.option("-n", "--limit", default=100, show_default=True)
@with_session
async def dead_ls(session: Session, *, queue: str | None, limit: int) -> None:
    """List the dead tasks of a queue and its steps, or of all queues, the oldest first.

    \b
      outlast dead ls
      outlast dead ls video
    """
    out = session.out
    check_limit(limit)
    async with session.store() as store, store.queue() as tasks:
        dead = [
            one
            for line in await _lines(tasks, queue)
            for one in await tasks.dead(line, limit=limit)
        ]
    dead = sorted(dead, key=lambda one: (one.died_at, one.task.id))[:limit]
    if out.json:
        for one in dead:
            out.value({"reason": one.reason, "died_at": one.died_at, "task": one.task})
        return
    if not dead:
        out.note("no dead task" if queue is None else f"no dead task in {queue!r}")
        return
    columns = [
        Column("TASK", 12),
        Column("QUEUE", 6, 1),
        Column("RUN", 8, 1),
        Column("STEP", 6, 2),
        Column("DIED", None, 3),
        Column("REASON", 10),
    ]
    out.table(
        columns,
        [
            [
                Cell(one.task.id),
                Cell(one.task.queue),
                Cell(one.task.run_id),
                Cell(one.task.step or one.task.name),
                Cell(out.moment(one.died_at)),
                Cell(one.reason, "red"),
            ]
            for one in dead
        ],
    )


@dead_command.command("redrive")
@click.argument("queue")
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@with_session
async def dead_redrive(session: Session, *, queue: str, tasks: tuple[str, ...]) -> None:
    """Make dead tasks ready again with new attempts: all of a queue and its steps, or those named.

    \b
      outlast dead redrive video
    """
    async with session.store() as store, store.queue() as found:
        number = 0
        for line in await _lines(found, queue):
            number += await found.redrive(line, tasks or None)
    _tell(session, queue, "redriven", number)


@dead_command.command("purge")
@click.argument("queue")
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@with_session
async def dead_purge(session: Session, *, queue: str, tasks: tuple[str, ...], yes: bool) -> None:
    """Delete dead tasks: all of a queue and its steps, or those named.

    \b
      outlast dead purge video --yes
    """
    async with session.store() as store, store.queue() as found:
        lines, number = await _lines(found, queue), 0
        if not yes and not tasks:
            number = sum([len(await found.dead(line, limit=10_000)) for line in lines])
            await confirm(
                f"remove {number} dead tasks of {queue}?",
                f"add --yes to remove {number} tasks without confirmation",
            )
        number = sum([await found.purge(line, tasks or None) for line in lines])
    _tell(session, queue, "purged", number)


async def _lines(tasks: Queue, queue: str | None) -> list[str]:
    """A queue and the queues of its steps, as `gpu/render` is one of `gpu`; or all that have a task."""
    names = await tasks.names()
    if queue is None:
        return names
    return [queue, *(name for name in names if name != queue and scope_of(name) == queue)]


def _tell(session: Session, queue: str, what: str, number: int) -> None:
    if session.out.json:
        session.out.value({"queue": queue, what: number})
    else:
        session.out.line(f"{what} {number:,} of {neutral(queue)}")
