"""Writes the figures of a benchmark into the docs, so that nobody copies them by hand.

    ./dev bench --json docs/reports/performance.json --plot docs/reports/plots
    ./dev python -m bench._page [--check]

What stands between `<!-- figures of NAME -->` or `<!-- plot of NAME -->` and `<!-- end -->` in the pages
is written again from the results: the tables of a workload, or one of its charts. `<!-- aims of all -->`
is what was asked for and what came of it, `<!-- peers of all -->` where a peer is better.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import _aims
from bench._plot import CHARTS
from bench._table import in_range

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "docs/reports/performance.json"
PLOTS = "docs/reports/plots"
PAGES = ("docs/reports/performance.md", "README.md")
BLOCK = re.compile(
    r"(<!-- (figures|plot|aims|peers) of ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL
)
WHOLE = {"aims": _aims.rows, "peers": _aims.better}
"""What is written from the results of all workloads."""

NOTHING = "*Not measured yet: `./dev bench {name}`.*"


def main(argv: list[str], root: Path = ROOT) -> int:
    """Write the pages, or check them; return 1 if one is out of date."""
    file = root / RESULTS
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    status = 0
    for page in PAGES:
        path = root / page
        text = path.read_text(encoding="utf-8")
        filled = fill(text, results, plots=_plots(root, path.parent))
        if argv == ["--check"] and filled != text:
            print(f"{page} is out of date: run ./dev python -m bench._page and commit it")
            status = 1
        elif argv != ["--check"]:
            path.write_text(filled, encoding="utf-8")
    return status


def _plots(root: Path, start: Path) -> dict[str, str]:
    """The charts that there are, as links from a page."""
    files = sorted((root / PLOTS).glob("*.svg"))
    return {file.stem: os.path.relpath(file, start).replace(os.sep, "/") for file in files}


def fill(text: str, results: dict[str, Any], *, plots: dict[str, str]) -> str:
    """A page with its blocks written again."""

    def block(found: re.Match[str]) -> str:
        begin, kind, name, end = found.groups()
        if kind == "plot":
            inside = f"![{CHARTS[name].title}]({plots[name]})" if name in plots else ""
        elif kind in WHOLE:
            inside = "\n".join(WHOLE[kind](results))
        elif name in results:
            inside = "\n".join(table(results[name]))
        else:
            inside = NOTHING.format(name=name)
        return f"{begin}{inside}\n{end}" if inside else f"{begin}{end}"

    return BLOCK.sub(block, text)


def table(workload: dict[str, Any]) -> Iterator[str]:
    """The contests of a workload in Markdown, its parts one after the other."""
    yield from _circumstances(workload)
    yield ""
    yield "| | figure | ratio | aim | under |"
    yield "|---|--:|--:|---|---|"
    for name, part in workload.items():
        for contest in part["contests"]:
            yield from _rows(contest)
        if part["failed"]:
            yield f"| **{name}** failed | | | | {_one_line(part['failed'])} |"


def _circumstances(workload: dict[str, Any]) -> Iterator[str]:
    """On which machine, when, under which load and how long; parts may come from several runs."""
    by_machine: dict[str, list[str]] = {}
    for name, part in workload.items():
        told = f"*{name}* {part['load_before']} before and {part['load_after']} after"
        by_machine.setdefault(part["machine"], []).append(f"{told}, {part['minutes']:g} minutes")
    for machine, parts in by_machine.items():
        yield f"{machine}. Load and time: {'; '.join(parts)}."


def _rows(contest: dict[str, Any]) -> Iterator[str]:
    better = ", less is better" if contest["less"] else ""
    yield f"| **{contest['name']}** ({contest['unit']}{better}) | | | | |"
    aims = {aim["against"]: aim for aim in contest["aims"]}
    for number, entry in enumerate(contest["entries"]):
        aim = _aim(contest, aims.get(entry["who"] if number else ""))
        ratio = _figure(entry, "ratio") + " ×" if "ratio" in entry else ""
        figure = _figure(entry, "value")
        yield f"| {entry['who']} | {figure} | {ratio} | {aim} | {entry['settings']} |"
    for who, why in contest["left_out"].items():
        yield f"| {who} | not measured | | | {_one_line(why)} |"


def _figure(entry: dict[str, Any], name: str) -> str:
    low, high = entry[f"{name}_low"], entry[f"{name}_high"]
    return in_range(entry[name], low, high, many=low != high)


def _aim(contest: dict[str, Any], aim: dict[str, Any] | None) -> str:
    if aim is None:
        return ""
    most = contest["less"] and (not aim["against"] or contest["grows"])
    outcome = {True: "reached", False: "**missed**", None: "open"}[aim["reached"]]
    return f"{'at most ' if most else ''}{aim['wanted']:,g}, {outcome}"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
