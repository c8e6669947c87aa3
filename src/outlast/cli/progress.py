"""Progress of what takes more than a second: how far, and how fast. On a terminal alone."""

from __future__ import annotations

import sys
import time

import click


class Progress:
    """Tells on standard error how many are done, of how many, and how many a second."""

    def __init__(self, what: str, total: int | None, of: str = "") -> None:
        self._what = what
        self._of = f" {of}" if of else ""
        self._total = total
        self._start = time.monotonic()
        self._told = self._start
        self._shown = False

    def at(self, done: int) -> None:
        """So many are done."""
        now = time.monotonic()
        if now - self._told < 1 or not sys.stderr.isatty():
            return
        self._told, self._shown = now, True
        rate = done / (now - self._start)
        of = "" if self._total is None else f" of {self._total:,}"
        click.echo(
            f"\r{self._what}: {done:,}{of}{self._of}, {rate:,.0f} a second\033[K",
            err=True,
            nl=False,
        )

    def end(self) -> None:
        """It is over: the line is taken back."""
        if self._shown:
            click.echo("\r\033[K", err=True, nl=False)
