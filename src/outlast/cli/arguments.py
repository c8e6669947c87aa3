"""Arguments that users type: JSON values, run ids and prefixes of them, confirmations, completions."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from outlast.cli.main import Exit
from outlast.cli.output import neutral
from outlast.cli.session import check_exists, find_place
from outlast.errors import InvalidId, NotFound, OutlastError
from outlast.model.ids import SEPARATOR, check_id
from outlast.model.query import RunQuery
from outlast.model.run import Attribute, Run
from outlast.ports.port import Capability
from outlast.ports.store import Store
from outlast.query.filter import attributes_like
from outlast.urls import resolve

MAX_ROWS = 20_000
MAX_SHOWN = 10


class Ambiguous(NotFound):
    """Several runs have this prefix."""

    def __init__(self, prefix: str, ids: list[str]) -> None:
        super().__init__("run", prefix)
        listed = "\n".join(f"  {id}" for id in ids[:MAX_SHOWN])
        more = f"\n  … and {len(ids) - MAX_SHOWN} more" if len(ids) > MAX_SHOWN else ""
        self.args = (f"several ids start with {prefix!r}; type more of the id:\n{listed}{more}",)


async def find_run(store: Store, typed: str, *, certain: bool = False) -> Run:
    """The run whose id is `typed`, or the only one whose id starts with it.

    With `certain`, for commands that change something, a prefix is accepted only if all runs could be
    searched: in a very large store the whole id is required."""
    try:
        check_id(typed, child=True)
        run = await store.find_one(typed)
    except InvalidId:
        run = None
    if run is not None:
        return run
    if not typed or Capability.FIND not in store.capabilities:
        raise NotFound("run", typed)
    matching, seen, whole = await _starting_with(store, typed)
    ids = sorted(matching)
    roots = [id for id in ids if not any(id.startswith(other + SEPARATOR) for other in ids)]
    if len(roots) > 1:
        raise Ambiguous(typed, roots)
    if not roots:
        raise _unknown(typed, seen)
    if certain and not whole:
        raise click.UsageError(
            f"{neutral(typed)!r} is a prefix of {roots[0]!r}, but there are too many runs to check that no "
            "other id starts with it: give the whole id"
        )
    return matching[roots[0]]


async def _starting_with(store: Store, typed: str) -> tuple[dict[str, Run], list[str], bool]:
    matching: dict[str, Run] = {}
    seen: list[str] = []
    async for run in store.find_all(RunQuery(limit=1_000)):
        if len(seen) >= MAX_ROWS:
            return matching, seen, False
        seen.append(run.id)
        if run.id.startswith(typed):
            matching[run.id] = run
    return matching, seen, True


def _unknown(typed: str, seen: list[str]) -> NotFound:
    error = NotFound("run", typed)
    near = get_close_matches(typed, seen[:2_000], 3, cutoff=0.6)
    if near:
        error.args = (f"{error}; did you mean {' or '.join(map(repr, near))}?",)
    else:
        error.args = (f"{error}; `outlast ls` lists the runs",)
    return error


def text_of(given: str) -> str:
    """The argument itself, the content of a file (`@file`), or standard input (`-`)."""
    try:
        if given == "-":
            return sys.stdin.read()
        if given.startswith("@"):
            return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{neutral(given)} cannot be read: {error}") from error
    return given


def json_of(given: str, what: str) -> Any:
    """A JSON value; an error points at the character where it goes wrong."""
    text = text_of(given)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        start = max(error.colno - 40, 0)
        around = neutral(line[start : start + 76])
        pointer = " " * (min(error.colno, len(line) + 1) - 1 - start) + "^"
        hint = (
            ""
            if re.match(r'\s*[\[{"\d\-tfn]', text)
            else " Text is written with quotes: '\"like this\"'."
        )
        raise click.UsageError(
            f"{what} is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).{hint}\n"
            f"  {around}\n  {pointer}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{what} is not JSON: {error}") from error


def attributes_of(given: tuple[str, ...]) -> dict[str, Attribute]:
    """Attributes given as NAME=VALUE. A value that is a JSON number or boolean is decoded."""
    found: dict[str, Attribute] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{neutral(pair)!r} is not an attribute: write NAME=VALUE")
        found[name] = attributes_like(value)[-1]
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


async def confirm(question: str, otherwise: str) -> None:
    """Ask for confirmation. Without a terminal, raise with `otherwise`, which says what to add to the
    command line. The answer no exits with 1, Ctrl-C as usual."""
    if not sys.stdin.isatty():
        raise click.UsageError(otherwise)
    if (await heard(f"{neutral(question)} [y/N]: ") or "").lower() not in ("y", "yes"):
        click.echo("nothing was changed", err=True)
        raise SystemExit(Exit.FOUND)


async def heard(prompt: str) -> str | None:
    """A line that is typed on the terminal; None at its end, `KeyboardInterrupt` for Ctrl-C."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bool] = loop.create_future()

    def hear(is_line: bool) -> None:
        if not typed.done():
            typed.set_result(is_line)

    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, hear, False)
    loop.add_reader(sys.stdin.fileno(), hear, True)
    try:
        click.echo(prompt, nl=False, err=True)
        if await typed:
            line = sys.stdin.readline()
            return line.strip() if line else None
    finally:
        loop.remove_reader(sys.stdin.fileno())
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
    click.echo(err=True)
    raise KeyboardInterrupt


COMPLETION_TIMEOUT_S = 2.0
MAX_COMPLETIONS, COMPLETION_ROWS = 50, 2_000
Offer = Callable[[Store, click.Context, str], Awaitable[list[CompletionItem]]]


class Completed(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions alone
    """Text that the store can complete."""

    name = "text"

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            return asyncio.run(self._ask(ctx, incomplete))
        except (OutlastError, click.ClickException, OSError, TimeoutError):
            return []

    async def _ask(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        place = find_place(ctx.params.get("store"))
        check_exists(place)
        async with asyncio.timeout(COMPLETION_TIMEOUT_S), resolve(place.url) as store:
            return await self._offer(store, ctx, incomplete)


async def _runs(store: Store, _: click.Context, typed: str) -> list[CompletionItem]:
    found: list[CompletionItem] = []
    looked = 0
    async for run in store.find_all(RunQuery(limit=500)):
        looked += 1
        if looked > COMPLETION_ROWS or len(found) == MAX_COMPLETIONS:
            break
        # A shell splits at other characters, and unprintable ones can control the terminal.
        if run.id.startswith(typed) and neutral(run.id) == run.id and " " not in run.id:
            found.append(CompletionItem(run.id, help=f"{run.workflow} {run.status}"))
    return found


async def _workflows(store: Store, _: click.Context, typed: str) -> list[CompletionItem]:
    names = sorted({workflow for workflow, status in await store.counts() if status})
    return [CompletionItem(name) for name in names if name.startswith(typed)][:MAX_COMPLETIONS]


async def _steps(store: Store, ctx: click.Context, typed: str) -> list[CompletionItem]:
    run_id: Any = ctx.params.get("run_id") or ""
    keys = dict.fromkeys(event.step_name for event in await store.history(run_id))
    return [CompletionItem(key) for key in keys if key and key.startswith(typed)][:MAX_COMPLETIONS]


RUN, WORKFLOW, STEP = Completed(_runs), Completed(_workflows), Completed(_steps)
