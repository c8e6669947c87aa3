"""Which store: ``--store``, else ``OUTLAST_STORE``, else ``[tool.outlast]`` in the nearest
pyproject.toml, else the SQLite file of the current folder."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import click

from outlast.transfer.tombstone import address_of

DEFAULT_FILE = "outlast.db"
# In the head of a SQLite file, at byte 68, stands whose it is.
_MAGIC, _OURS = b"SQLite format 3\0", b"outl"


class StoreChoice(NamedTuple):
    """A store's URL, and who named it."""

    url: str
    named_by: str

    @property
    def shown(self) -> str:
        """The URL without a password."""
        return address_of(self.url)


def find_place(option: str | None) -> StoreChoice:
    """The store that is meant."""
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
    """``[tool.outlast]`` of the nearest pyproject.toml, in this folder or above."""
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
    """Refuse a SQLite file that is not there: reading must not make one."""
    if not place.url.startswith("sqlite:///"):
        return
    path = Path(place.url.removeprefix("sqlite:///"))
    if not path.exists():
        raise click.UsageError(
            f"there is no store at {path} (named by {place.named_by}). Name one with --store URL, "
            "OUTLAST_STORE, or store = … under [tool.outlast] in pyproject.toml; "
            f"`outlast db upgrade --store {place.url}` makes a new one"
        )


def _beside(url: str, folder: Path) -> str:
    """A relative file is meant from the folder of the settings that name it."""
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
