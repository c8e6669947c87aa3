"""Which store a command uses, and `Session`: the store, the output and the options that all commands share.

The store is ``--store``, else ``OUTLAST_STORE``, else ``[tool.outlast]`` in the nearest pyproject.toml, else
the SQLite file of the current folder.
"""

from __future__ import annotations

import asyncio
import os
import tomllib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TypeVar

import click

from outlast.cli.output import Output
from outlast.client import Client
from outlast.errors import Unavailable
from outlast.ports.store import Store
from outlast.transfer.tombstone import address_of
from outlast.urls import resolve

F = TypeVar("F", bound=Callable[..., Any])
CONNECT_SECONDS = 15.0


class Session:
    """One invocation of a command."""

    def __init__(self, store: str | None, output: Output) -> None:
        self._option = store
        self.out = output

    @property
    def place(self) -> StoreChoice:
        """The chosen store."""
        return find_place(self._option)

    @property
    def store_given(self) -> bool:
        """Whether the command line names a store."""
        return self._option is not None

    def here(self, command: str) -> str:
        """A command for the user to type, with the same --store. `outlast worker` gets its store from the app."""
        if not self.store_given or " --store " in command or command.startswith("outlast worker "):
            return command
        typed, remark, why = command.partition("   #")
        return f"{typed} --store {quote(self.place.shown)}{remark}{why}"

    @asynccontextmanager
    async def store(
        self, *, create: bool = False, at: StoreChoice | None = None
    ) -> AsyncIterator[Store]:
        """The chosen store, or another one, open. A missing store is created only with `create`."""
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
    """A client of a store, without workflow code."""
    return Client(store)


def description_of(store: Store) -> dict[str, Any]:
    """The description that a store gives of itself; empty if it has none."""
    describe = getattr(store, "describe", None)
    return {} if describe is None else describe()


def with_session(
    function: Callable[..., Coroutine[Any, Any, None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Callable[..., None]:
    """Turn an async function with a `Session` into a command with the common options. A long-running
    command may pass a `loop_factory`, for a loop that takes longer to import."""

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


DEFAULT_FILE = "outlast.db"
# SQLite's application_id, at byte 68 of the file.
_MAGIC, _OURS = b"SQLite format 3\0", b"outl"


class StoreChoice(NamedTuple):
    """The URL of a store, and where it was set."""

    url: str
    named_by: str

    @property
    def shown(self) -> str:
        """The URL without a password."""
        return address_of(self.url)


def find_place(option: str | None) -> StoreChoice:
    """The store that is chosen by the option, the environment, the settings or the current folder."""
    if option:
        return StoreChoice(option, "--store")
    if from_environment := os.environ.get("OUTLAST_STORE"):
        return StoreChoice(from_environment, "OUTLAST_STORE")
    settings, file = settings_here()
    if store := settings.get("store"):
        if not isinstance(store, str) or file is None:
            raise click.UsageError(f"store in [tool.outlast] of {file} is not text: write a URL")
        return StoreChoice(_beside(store, file.parent), str(file))
    return StoreChoice(f"sqlite:///{_file_here()}", "the file of this folder")


def settings_here() -> tuple[dict[str, Any], Path | None]:
    """``[tool.outlast]`` of the nearest pyproject.toml, in this folder or a parent."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{file} cannot be read: {error}") from error
        settings = tool.get("outlast", {}) if isinstance(tool, dict) else {}
        return (settings if isinstance(settings, dict) else {}), file
    return {}, None


def check_exists(place: StoreChoice) -> None:
    """Raise for a SQLite file that does not exist: reading must not create one."""
    if not place.url.startswith("sqlite:///"):
        return
    path = Path(place.url.removeprefix("sqlite:///"))
    if not path.exists():
        raise click.UsageError(
            f"there is no store at {path} (named by {place.named_by}). Name one with --store URL, "
            "OUTLAST_STORE, or store = … under [tool.outlast] in pyproject.toml; "
            f"`outlast db upgrade --store {place.url}` creates a new one"
        )


def _beside(url: str, folder: Path) -> str:
    """Resolve a relative file against the folder of the settings that name it."""
    path = url.removeprefix("sqlite:///")
    if path == url or Path(path).is_absolute():
        return url
    return f"sqlite:///{folder / path}"


def _file_here() -> str:
    if Path(DEFAULT_FILE).exists():
        return DEFAULT_FILE
    stores = [path.name for path in sorted(Path().glob("*.db")) if _is_ours(path)]
    if len(stores) > 1:
        raise click.UsageError(
            f"this folder has several stores, {', '.join(stores)}: choose one with "
            f"--store sqlite:///{stores[0]}"
        )
    return stores[0] if stores else DEFAULT_FILE


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(72)
    except OSError:
        return False
    return head.startswith(_MAGIC) and head[68:72] == _OURS
