"""Values that are given on the command line as JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from outlast.cli.text import neutral
from outlast.model.run import Attribute
from outlast.query.values import attributes_like


def text_of(given: str) -> str:
    """What was given: as it stands, of a file (`@file`), or of standard input (`-`)."""
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
    """Attributes given as NAME=VALUE; what reads as a number or as true or false is that."""
    found: dict[str, Attribute] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{neutral(pair)!r} is no attribute: write NAME=VALUE")
        found[name] = attributes_like(value)[-1]
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not part of it")
