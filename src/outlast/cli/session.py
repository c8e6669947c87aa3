"""Session: what every command has: the store it acts on, how it tells what it did, and a client.
The options for it are the same everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from shlex import quote
from typing import Any, TypeVar

import click

from outlast.cli.output import Output
from outlast.cli.place import StoreChoice, check_exists, find_place
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.errors import Unavailable
from outlast.ports.store import Store
from outlast.urls import resolve

F = TypeVar("F", bound=Callable[..., Any])
CONNECT_SECONDS = 15.0


class Session:
    """One call of a command."""

    def __init__(self, store: str | None, output: Output) -> None:
        self._option = store
        self.out = output

    @property
    def place(self) -> StoreChoice:
        """The store that is meant."""
        return find_place(self._option)

    @property
    def store_given(self) -> bool:
        """Whether the command line names a store."""
        return self._option is not None

    def here(self, command: str) -> str:
        """A command to be typed, with the store that this one was given. An app names its own."""
        if not self.store_given or " --store " in command or command.startswith("outlast worker "):
            return command
        typed, remark, why = command.partition("   #")
        return f"{typed} --store {quote(self.place.shown)}{remark}{why}"

    @asynccontextmanager
    async def store(
        self, *, create: bool = False, at: StoreChoice | None = None
    ) -> AsyncIterator[Store]:
        """The store that is meant, or another, open. One that is not there is only made with
        `create`."""
        place = at or self.place
        if not create:
            check_exists(place)
        store = resolve(place.url)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await store.open()
        except (TimeoutError, OSError) as error:
            raise Unavailable(
                f"the store {place.shown} (named by {place.named_by}) does not answer: "
                f"{str(error) or 'it took too long'}. Is it running, and is the URL right?"
            ) from error
        try:
            self.out.now = await store.now()
            yield store
        finally:
            await store.close()


def client_of(store: Store) -> Client:
    """A client on a store, which knows no workflow's code."""
    return Client(store, codec=JsonCodec())


def told_of(store: Store) -> dict[str, Any]:
    """What a store tells about itself; one that has nothing to tell need not."""
    describe = getattr(store, "describe", None)
    return {} if describe is None else describe()


def with_session(
    function: Callable[..., Coroutine[Any, Any, None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Callable[..., None]:
    """Make an async function with a `Session` a command: it gets the options that all have. What
    lives for long may have a loop of another kind, which takes longer to load."""

    @click.option("--store", metavar="URL", help="The store; see `outlast --help`.")
    @click.option("--json", is_flag=True, help="One JSON value a line, also on a terminal.")
    @click.option("--utc", is_flag=True, help="Exact times in UTC, not “3m ago”.")
    @click.option("--color/--no-color", "colour", default=None, help="Colours, or none.")
    @wraps(function)
    def command(
        *args: Any, store: str | None, json: bool, utc: bool, colour: bool | None, **options: Any
    ) -> None:
        session = Session(store, Output(json=json, utc=utc, colour=colour))
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(function(session, *args, **options))

    return command
