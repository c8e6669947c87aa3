"""An aligned table that fits the terminal: columns that matter less are left out first, then the
widest are shortened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outlast.cli.text import shortened, width_of

GAP = 2


class Column(NamedTuple):
    """A heading; the least width it can be shortened to (None: it never is); and how dispensable it
    is: 0 stays, higher goes first."""

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
    """The heading and the rows, padded so that they stand under each other in `width` columns."""
    kept = list(range(len(columns)))
    # A column in which nothing stands says nothing.
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
        # A terminal narrower than anything was made for: the first column gives what it can.
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
