"""`outlast asks`: what runs ask people, and answers to it. On a terminal the form is asked field by field."""

from __future__ import annotations

import getpass
import sys
from typing import Any

import click

from outlast.cli.arguments import heard, json_of
from outlast.cli.output import Cell, Column, neutral, to_json
from outlast.cli.session import Session, client_of, with_session
from outlast.client.view import Unreadable
from outlast.codecs.schema import problem_in, resolved
from outlast.model.asks import Ask

KINDS = {"boolean": "yes or no", "integer": "whole number", "number": "number", "string": "text"}
YES, NO = ("y", "yes", "true"), ("n", "no", "false")


@click.group("asks")
def asks_command() -> None:
    """Questions of runs to people: list, show and answer them."""


@asks_command.command("ls")
@click.option("--to", multiple=True, metavar="NAME", help="Only those to this person or group.")
@click.option("--workflow", metavar="NAME", help="Only those of runs of this workflow.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many.")
@with_session
async def asks_ls(
    session: Session, *, to: tuple[str, ...], workflow: str | None, limit: int | None
) -> None:
    """List the open questions of all runs, those of the oldest run first.

    \b
      outlast asks ls
      outlast asks ls --to finance --to ann
    """
    out = session.out
    async with session.store() as store:
        found = await client_of(store).asks.list(to=to or None, workflow=workflow, limit=limit)
        now = await store.now()
    if out.json:
        for ask in found:
            out.value(ask.to_dict())
        return
    if not found:
        out.note("no run asks anything")
        return
    columns = [
        Column("ASK", 12),
        Column("TO", 6, 1),
        Column("TITLE", 8, 2),
        Column("ASKED", None, 3),
        Column("DUE", None),
    ]
    out.table(
        columns,
        [
            [
                Cell(ask.id),
                Cell(ask.to),
                Cell(_title(ask)),
                Cell(out.moment(ask.asked_at)),
                Cell(
                    "" if ask.due_at is None else out.moment(ask.due_at),
                    "red" if ask.is_overdue(now) else None,
                ),
            ]
            for ask in found
        ],
    )


@asks_command.command("show")
@click.argument("ask_id", metavar="ASK")
@with_session
async def asks_show(session: Session, *, ask_id: str) -> None:
    """Show a question: what is asked, whom, its form, and who has answered.

    \b
      outlast asks show expense-7/f3kq7xa2
    """
    async with session.store() as store:
        ask = await client_of(store).asks.get(ask_id)
    if session.out.json:
        session.out.value(ask.to_dict())
    else:
        _show(session, ask)


@asks_command.command("answer")
@click.argument("ask_id", metavar="ASK")
@click.option("--value", metavar="JSON", help="The answer; without it the form is asked.")
@click.option("--by", metavar="NAME", help="Who answers; by default the user of this terminal.")
@with_session
async def asks_answer(session: Session, *, ask_id: str, value: str | None, by: str | None) -> None:
    """Answer a question. Without --value the form is asked field by field.

    \b
      outlast asks answer expense-7/f3kq7xa2
      outlast asks answer expense-7/f3kq7xa2 --value '{"approved": true}' --by ann
    """
    given = None if value is None else json_of(value, "--value")
    async with session.store() as store:
        asks = client_of(store).asks
        if value is None:
            if not sys.stdin.isatty():
                raise click.UsageError("this is not a terminal: give the answer with --value JSON")
            ask = await asks.get(ask_id)
            if ask.status == "open":
                _show(session, ask)
                given = await _form(ask.schema or {}, ask.schema or {}, "answer")
        who = _user() if by is None else by
        await asks.answer(ask_id, given, by=who)
    if session.out.json:
        session.out.value({"ask": ask_id, "did": "answered", "by": who})
    else:
        session.out.line(f"answered  {neutral(ask_id)}")


def _show(session: Session, ask: Ask) -> None:
    out = session.out
    lines = [
        ("title", _title(ask)),
        ("status", ask.status),
        ("to", ask.to),
        ("run", f"{ask.run_id} ({ask.workflow})"),
        ("asked", out.moment(ask.asked_at)),
        ("due", "" if ask.due_at is None else out.moment(ask.due_at)),
        ("data", _text(ask.data)),
        ("form", _form_text(ask.schema)),
        ("answered by", ask.by),
        ("answered", "" if ask.answered_at is None else out.moment(ask.answered_at)),
        ("answer", "" if ask.status != "answered" else _text(ask.answer)),
    ]
    for name, text in lines:
        if text:
            out.line(f"{name:<12}  {neutral(text)}")


def _title(ask: Ask) -> str:
    return ask.title or ("" if ask.data is None else _text(ask.data))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"unreadable: {value.reason}" if isinstance(value, Unreadable) else to_json(value)


def _form_text(schema: Any) -> str:
    """The fields of a form, in one line."""
    if schema is None:
        return ""
    form = resolved(schema, schema)
    fields = form.get("properties")
    if not fields:
        return _kind(form, schema)
    required = form.get("required", ())
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_kind(part, schema)}"
        for name, part in fields.items()
    )


def _kind(schema: Any, root: Any) -> str:
    """What a value of a schema is, in a few words."""
    part = resolved(schema, root)
    if "enum" in part:
        return " | ".join(map(str, part["enum"]))
    if "anyOf" in part:
        return " or ".join(_kind(one, root) for one in part["anyOf"])
    kind = str(part.get("type", "JSON"))
    return {"null": "nothing", **KINDS}.get(kind, "JSON")


async def _form(schema: Any, root: Any, name: str) -> Any:
    """Ask for a value of a schema, an object field by field, until it fits."""
    form = resolved(schema, root)
    fields = form.get("properties")
    if fields:
        required = form.get("required", ())
        found = {}
        for field, part in fields.items():
            value = await _field(part, root, field, is_required=field in required)
            if value is not _LEFT_OUT:
                found[field] = value
        return found
    return await _field(schema, root, name, is_required=True)


_LEFT_OUT = object()


async def _field(schema: Any, root: Any, name: str, *, is_required: bool) -> Any:
    part = resolved(schema, root)
    if part.get("properties") and is_required:
        return await _form(schema, root, name)
    default = f", default {to_json(part['default'])}" if "default" in part else ""
    optional = "" if is_required else default or ", may be empty"
    while True:
        typed = await heard(f"{neutral(name)} ({neutral(_kind(part, root))}{optional}): ")
        if typed is None:
            raise click.UsageError("the form was not filled in: the question stays open")
        if not typed and not is_required:
            return _LEFT_OUT
        value = _read(typed, part, root)
        problem = problem_in(value, schema, root)
        if problem is None:
            return value
        click.echo(f"  {neutral(problem)}", err=True)


def _read(typed: str, part: dict[str, Any], root: Any) -> Any:
    """What a person typed, as a value of a schema: JSON where that fits, otherwise text."""
    for choice in part.get("anyOf", ()):
        value = _read(typed, resolved(choice, root), root)
        if problem_in(value, choice, root) is None:
            return value
    if part.get("type") == "boolean" and typed.lower() in (*YES, *NO):
        return typed.lower() in YES
    if part.get("type") == "string" or typed in part.get("enum", ()):
        return typed
    try:
        return json_of(typed, "it")
    except click.UsageError:
        return typed


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in some containers
        return ""
