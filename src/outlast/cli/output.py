"""Output: tables, colours and times for people; one JSON value a line for programs.

A program reads if standard output is no terminal, or with ``--json``. What is not an answer
(progress, advice, which store) goes to standard error, so that a pipe has answers alone.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from outlast.cli.table import Cell, Column, fitted
from outlast.cli.text import ago, iso, neutral, neutral_lines, shortened, to_json
from outlast.model.run import Status

STATUS_COLOURS = {
    Status.PENDING: "bright_black",
    Status.RUNNING: "cyan",
    Status.WAITING: "blue",
    Status.HALTED: "magenta",
    Status.PAUSED: "yellow",
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.CANCELLED: "bright_black",
    "retrying": "yellow",
    "abandoned": "bright_black",
}


class Output:
    """Where answers go, and how they look there."""

    def __init__(
        self, *, json: bool = False, utc: bool = False, colour: bool | None = None
    ) -> None:
        terminal = sys.stdout.isatty()
        self.json = json or not terminal
        self.utc = utc or self.json
        if colour is None:
            plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
            colour = terminal and not plain
        self.colour = colour and not self.json
        self.width = max(shutil.get_terminal_size((80, 24)).columns, 20) if terminal else 100
        self.now = datetime.now(UTC)

    # -- answers --------------------------------------------------------------------------------

    def value(self, value: Any) -> None:
        """One JSON value on a line of its own."""
        click.echo(to_json(value))

    def line(self, text: str = "", colour: str | None = None, *, bold: bool = False) -> None:
        """A line for people. `text` is ours, or has been made neutral."""
        click.echo(self.styled(text, colour, bold=bold), color=self.colour)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """An aligned table with a heading."""
        safe = [[Cell(neutral(cell.text), cell.colour) for cell in row] for row in rows]
        for line in fitted(columns, safe, self.width):
            text = "".join(self.styled(cell.text, cell.colour) for cell in line)
            click.echo(text.rstrip(), color=self.colour)

    def styled(self, text: str, colour: str | None = None, *, bold: bool = False) -> str:
        """Text in a colour, where there are colours."""
        if not self.colour or (colour is None and not bold):
            return text
        return click.style(text, fg=colour, bold=bold or None)

    def status(self, status: str) -> Cell:
        """A status in its colour."""
        return Cell(str(status), STATUS_COLOURS.get(status))

    def moment(self, moment: datetime | None) -> str:
        """A moment: as seen from now, or with --utc exactly."""
        if moment is None:
            return ""
        return iso(moment) if self.utc else ago(moment, self.now)

    def short(self, text: str, used: int = 0) -> str:
        """Foreign text in what is left of a line."""
        return shortened(neutral(text), max(self.width - used, 8))

    # -- beside the answers ---------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Something that is not an answer."""
        click.echo(neutral_lines(text), err=True)
