"""What a command prints: tables, colours and relative times on a terminal; JSON lines for programs.

Output is for programs if standard output is not a terminal, or with ``--json``. Only results go to standard
output; progress, advice and the name of the store go to standard error. User data cannot control the
terminal: control characters and bidirectional marks are escaped (S11), in JSON by JSON's own escapes.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import click
import msgspec

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
    """Writes results to standard output, and notes to standard error."""

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

    # -- results --------------------------------------------------------------------------------

    def value(self, value: Any) -> None:
        """One JSON value on a line of its own."""
        click.echo(to_json(value))

    def line(self, text: str = "", colour: str | None = None, *, bold: bool = False) -> None:
        """A line for people. `text` must be safe for a terminal: constant, or from `neutral`."""
        click.echo(self.styled(text, colour, bold=bold), color=self.colour)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """An aligned table with a heading."""
        safe = [[Cell(neutral(cell.text), cell.colour) for cell in row] for row in rows]
        for line in fitted(columns, safe, self.width):
            text = "".join(self.styled(cell.text, cell.colour) for cell in line)
            click.echo(text.rstrip(), color=self.colour)

    def styled(self, text: str, colour: str | None = None, *, bold: bool = False) -> str:
        """Text in a colour, if colours are on."""
        if not self.colour or (colour is None and not bold):
            return text
        return click.style(text, fg=colour, bold=bold or None)

    def status(self, status: str) -> Cell:
        """A status in its colour."""
        return Cell(str(status), STATUS_COLOURS.get(status))

    def moment(self, moment: datetime | None) -> str:
        """A time: relative to now, or exact with --utc."""
        if moment is None:
            return ""
        return iso(moment) if self.utc else ago(moment, self.now)

    def short(self, text: str, used: int = 0) -> str:
        """User text, shortened to the rest of a line."""
        return shortened(neutral(text), max(self.width - used, 8))

    # -- notes ----------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Text that is not a result."""
        click.echo(neutral_lines(text), err=True)


GAP = 2


class Column(NamedTuple):
    """A heading; the minimum width it can be shortened to (None: never shortened); and its rank: 0 is
    always shown, higher ranks are dropped first."""

    name: str
    least: int | None = None
    dispensable: int = 0


class Cell(NamedTuple):
    """A text and its colour."""

    text: str
    colour: str | None = None


def fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int
) -> list[list[Cell]]:
    """The heading and the rows, padded so that columns align within `width`."""
    kept = list(range(len(columns)))
    # Empty columns are left out.
    kept = [
        at
        for at in kept
        if not rows or not columns[at].dispensable or any(r[at].text for r in rows)
    ]
    natural = [
        max([width_of(column.name), *(width_of(row[at].text) for row in rows)])
        for at, column in enumerate(columns)
    ]
    least = [
        natural[at] if column.least is None else min(column.least, natural[at])
        for at, column in enumerate(columns)
    ]
    while len(kept) > 1 and sum(least[at] + GAP for at in kept) - GAP > width:
        going = max(kept, key=lambda at: (columns[at].dispensable, at))
        if columns[going].dispensable == 0:
            break
        kept.remove(going)
    widths = _shared(kept, natural, least, width)
    lines = [[Cell(column.name, "bright_black") for column in columns], *rows]
    return [_padded(line, kept, widths) for line in lines]


def _shared(kept: list[int], natural: list[int], least: list[int], width: int) -> dict[int, int]:
    widths = {at: natural[at] for at in kept}
    while sum(widths.values()) + GAP * (len(kept) - 1) > width:
        shrinkable = [at for at in kept if widths[at] > least[at]]
        if not shrinkable:
            break
        widest = max(shrinkable, key=lambda at: widths[at] - least[at])
        widths[widest] -= 1
    over = sum(widths.values()) + GAP * (len(kept) - 1) - width
    if over > 0 and kept:
        # The terminal is too narrow for the minimum widths: shorten the first column.
        widths[kept[0]] = max(widths[kept[0]] - over, 4)
    return widths


def _padded(line: Sequence[Cell], kept: list[int], widths: dict[int, int]) -> list[Cell]:
    cells = []
    for at in kept:
        text = shortened(line[at].text, widths[at])
        last = at == kept[-1]
        pad = "" if last else " " * (widths[at] - width_of(text) + GAP)
        cells.append(Cell(text + pad, line[at].colour))
    return cells


class Progress:
    """Shows on standard error how many are done, of how many, and the rate per second."""

    def __init__(self, what: str, total: int | None, of: str = "") -> None:
        self._what = what
        self._of = f" {of}" if of else ""
        self._total = total
        self._start = time.monotonic()
        self._told = self._start
        self._shown = False

    def at(self, done: int) -> None:
        """So many are done; redraw the line."""
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
        """Erase the line."""
        if self._shown:
            click.echo("\r\033[K", err=True, nl=False)


_STEPS = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)]


def length(seconds: float) -> str:
    """A duration in at most two units: 3d 4h, 1.2s, 35ms."""
    if seconds < 0.0005:
        return "0s" if seconds <= 0 else "<1ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _STEPS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size}{unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts)


def ago(moment: datetime, now: datetime) -> str:
    """A time relative to now: `3m ago`, `in 2h`."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    text = length(abs(seconds)).split()[0] if abs(seconds) >= 10 else f"{abs(seconds):.0f}s"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def iso(moment: datetime) -> str:
    """A time in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def between(start: datetime | None, end: datetime | None) -> timedelta | None:
    """The duration between two times, if both are known."""
    return None if start is None or end is None else end - start


# C0, DEL and C1; bidirectional marks; invisible characters and line breaks; tags; lone surrogates, which
# cannot be encoded.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def neutral(text: str) -> str:
    """Text as one line without characters that control the terminal."""
    return _UNSAFE.sub(_escape, text)


def neutral_lines(text: str) -> str:
    """The same for several lines, keeping lines and indentation."""
    return "\n".join(neutral(line.replace("\t", "    ")) for line in text.splitlines())


def to_json(value: Any) -> str:
    """A value as one line of JSON without characters that control the terminal."""
    return _UNSAFE.sub(_json_escape, msgspec.json.encode(value).decode())


def width_of(text: str) -> int:
    """How many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def shortened(text: str, width: int) -> str:
    """Text in at most `width` columns, with an ellipsis for what is cut."""
    if width_of(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += width_of(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…" if width > 0 else ""


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    short = _SHORT.get(match[0])
    if short is not None:
        return short
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def _json_escape(match: re.Match[str]) -> str:
    encoded = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{encoded[at : at + 4]}" for at in range(0, len(encoded), 4))
