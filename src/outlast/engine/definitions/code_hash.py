"""The hash of the code that a worker has, by which workers with the same code are told from others.

It covers what a replay executes as far as one process can see it: the bytecode of each workflow, the plain
constants that it reads from its module, and the file in which it stands. Two processes with the same hash
would fail on the same run in the same way; a hash that differs without need costs one more try.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from outlast.model.ids import SCHEDULE_OF

if TYPE_CHECKING:
    from outlast.engine.definitions.definition import WorkflowDefinition

PLAIN = (bool, int, float, str, bytes, type(None))


def code_hash(workflows: Iterable[WorkflowDefinition]) -> str:
    """One hash of all workflows that a worker has."""
    found = hashlib.sha256()
    for one in sorted(workflows, key=lambda each: each.name):
        if not one.name.startswith(SCHEDULE_OF):  # those are outlast's own
            function: Any = one.function
            code = getattr(function, "__code__", None)  # what is written in C has none
            values = getattr(function, "__globals__", {})
            told = "" if code is None else _told(code, values)
            found.update(
                f"{one.name} {one.version!r} {_file(function.__module__)} {told}\n".encode()
            )
    return found.hexdigest()[:16]


def _told(code: CodeType, values: dict[str, Any]) -> str:
    parts = [code.co_code.hex(), repr((code.co_argcount, code.co_kwonlyargcount, code.co_varnames))]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            parts.append(_told(constant, values))
        elif isinstance(constant, PLAIN):  # the order of a set is another one in each process
            parts.append(repr(constant))
    for name in code.co_names:
        value = values.get(name)
        parts.append(f"{name}={value!r}" if isinstance(value, PLAIN) else name)
    return " ".join(parts)


@cache
def _file(module: str) -> str:
    """The file of a module, as it was when it was first asked for."""
    path = getattr(sys.modules.get(module), "__file__", None)
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""
