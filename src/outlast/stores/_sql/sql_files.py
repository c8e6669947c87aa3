"""SQL in files: statements by name, and numbered migrations that are applied in order, never back.

`sql/*.sql` of a store holds its statements, each under a line ``-- name: …``; the text before the
first name says what the file is about. `migrations/NNNN_name.sql` changes the tables. A migration
only adds, so that processes with an older outlast keep working on the same tables.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from outlast.errors import SchemaTooNew

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class Migration(NamedTuple):
    """One numbered change of the tables."""

    version: int
    script: str


@cache
def named_statements(package: str) -> dict[str, str]:
    """The statements in the folder `sql` of a package, by name."""
    found: dict[str, str] = {}
    for file in files(package).joinpath("sql").iterdir():
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        found.update(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    return found


@cache
def numbered_migrations(package: str) -> tuple[Migration, ...]:
    """The files in the folder `migrations` of a package, in order."""
    found = []
    for file in files(package).joinpath("migrations").iterdir():
        number, _, rest = file.name.partition("_")
        if rest.endswith(".sql"):
            found.append(Migration(int(number), file.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def check_version(where: object, version: int, latest: int) -> int:
    """The version of a schema; `SchemaTooNew` if it is later than the `latest` of this outlast."""
    if version > latest:
        raise SchemaTooNew(
            f"{where} has schema version {version}, and this outlast knows {latest}: a newer "
            "outlast has written it. Upgrade outlast in this process"
        )
    return version
