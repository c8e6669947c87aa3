"""Charts of the results, as SVG without any dependency, for light and dark pages.

    ./dev python -m bench._plot RESULTS.json FOLDER

A chart is a file with some contests of a workload below each other. Bars start at zero and are as long
as the median; a thin line shows the range. Ours have the colour. Stacks become a flame graph.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from bench._flame import flame
from bench._table import contests_of, in_range


class Chart(NamedTuple):
    """What is drawn into one file: the contests of a workload whose names match."""

    workload: str
    title: str
    pattern: str


CHARTS = {
    "steps": Chart("steps", "Ten-step workflows, many at once", r"ten steps, \d+ at once, \w+$"),
    "latency": Chart("steps", "Ten-step workflows, one at a time", r"one at a time, p50"),
    "processes": Chart("steps", "Several worker processes on one store", r"in each process"),
    "jobs": Chart("jobs", "Tiny jobs, added and done", r"added and done, as (tasks|runs),"),
    "recovery": Chart("recovery", "From kill -9 until all workflows are done", r"all are done"),
    "log": Chart("log", "Appending events, one a commit", r"append, 1 event a commit"),
    "resume": Chart("log", "Coming back to a long run", r"resume a run"),
    "fan-out": Chart("fan_out", "Mapping a step over many items", r"items, \w+$"),
    "start": Chart("start", "A new process", r"import|first step"),
    "profile": Chart("profile", "Where the time goes", r"where the time goes"),
    "growth": Chart("growth", "A workflow of ten steps among so many runs", r"runs: ten steps"),
}

WIDTH, NAMES, BARS = 760, 220, 330
ROW, HEAD, GAP, TOP = 22, 26, 16, 40
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
  .title { font-size: 16px; font-weight: 600; }
  .head { font-weight: 600; }
  .soft { fill: #59636e; }
  .bar { fill: #afb8c1; }
  .ours { fill: #0969da; }
  .range { stroke: #1f2328; stroke-width: 1; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .soft { fill: #9198a1; }
    .bar { fill: #59636e; }
    .ours { fill: #4493f8; }
    .range { stroke: #f0f6fc; }
  }
"""


def main(argv: list[str]) -> int:
    """Draw what a file holds."""
    results, folder = argv
    for path in draw(json.loads(Path(results).read_text(encoding="utf-8")), Path(folder)):
        print(path)
    return 0


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the charts that there are results for; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, chart in CHARTS.items():
        contests = [
            _durable(one)
            for one in contests_of(results, chart.workload)
            if re.search(chart.pattern, one["name"]) and one["entries"]
        ]
        if contests:
            path = folder / f"{name}.svg"
            stacks = {one["name"]: one["stacks"] for one in contests if "stacks" in one}
            text = flame(chart.title, stacks) if stacks else picture(chart.title, contests)
            path.write_text(text, encoding="utf-8")
            drawn.append(path)
    return drawn


def _durable(contest: dict[str, Any]) -> dict[str, Any]:
    """Without what keeps nothing: that is for the table, where it says so."""
    kept = [entry for entry in contest["entries"] if entry["who"] != "outlast, memory"]
    return {**contest, "entries": kept}


def picture(title: str, contests: list[dict[str, Any]]) -> str:
    """The SVG of some contests, below each other."""
    lines = [f'<text class="title" x="12" y="26">{escape(title)}</text>']
    y = TOP
    for contest in contests:
        better = "less is better" if contest["less"] else "more is better"
        lines.append(
            f'<text class="head" x="12" y="{y + 18}">{escape(contest["name"])}'
            f'<tspan class="soft" dx="10" font-weight="400">{escape(contest["unit"])}, {better}</tspan></text>'
        )
        y += HEAD
        lines += _bars(contest, y)
        y += ROW * len(contest["entries"]) + GAP
    text = "\n".join(f"  {line}" for line in lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'height="{y}" role="img" aria-label="{escape(title)}">\n'
        f"  <style>{STYLE}  </style>\n{text}\n</svg>\n"
    )


def _bars(contest: dict[str, Any], y: int) -> Iterator[str]:
    longest = max(entry["value_high"] for entry in contest["entries"]) or 1.0
    for entry in contest["entries"]:
        who, middle = escape(entry["who"]), y + ROW // 2
        length, low, high = (
            entry[name] / longest * BARS for name in ("value", "value_low", "value_high")
        )
        kind = "bar ours" if entry["who"].startswith("outlast") else "bar"
        yield f'<text x="{NAMES}" y="{middle + 4}" text-anchor="end">{who}</text>'
        yield (
            f'<rect class="{kind}" x="{NAMES + 8}" y="{y + 3}" width="{max(length, 1):.1f}" '
            f'height="{ROW - 7}" rx="2"/>'
        )
        if high > low:
            yield (
                f'<line class="range" x1="{NAMES + 8 + low:.1f}" x2="{NAMES + 8 + high:.1f}" '
                f'y1="{middle - 1}" y2="{middle - 1}"/>'
            )
        value = in_range(entry["value"], 0, 0, many=False)
        yield (
            f'<text x="{NAMES + 14 + max(high, length):.1f}" y="{middle + 4}">{value}'
            f'<tspan class="soft" dx="8">{_compared(contest, entry)}</tspan></text>'
        )
        y += ROW


def _compared(contest: dict[str, Any], entry: dict[str, Any]) -> str:
    if "ratio" not in entry:
        return ""
    ratio = in_range(entry["ratio"], 0, 0, many=False)
    return f"× {ratio}" if contest["grows"] else f"outlast × {ratio}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
