"""The Lua scripts by name, each with the parts of lua/lib that it includes, and its SHA."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_FOLDER = files("outlast.stores.redis").joinpath("lua")


class Script(NamedTuple):
    """A static script. Redis knows it by its SHA once it was loaded."""

    name: str
    text: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script of that name."""
    source = _FOLDER.joinpath(f"{name}.lua").read_text(encoding="utf-8")
    text = _COMMENT.sub("", _whole(source)).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


@cache
def all_scripts() -> tuple[Script, ...]:
    """Every script, to be loaded at once."""
    names = [file.name for file in _FOLDER.iterdir()]
    return tuple(script(name[:-4]) for name in sorted(names) if name.endswith(".lua"))


@cache
def _part(name: str) -> str:
    return _whole(_FOLDER.joinpath("lib", f"{name}.lua").read_text(encoding="utf-8"))


def _whole(source: str) -> str:
    return _INCLUDE.sub(lambda found: _part(found[1]), source)
