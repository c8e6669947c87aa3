"""A flame graph as SVG, for light and dark pages: boxes as wide as their share of the time, what is
called below its caller, in the colour of its layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

WIDTH, EDGE, ROW, TOP = 960, 12, 17, 44
LETTER = 6.4
"""Pixels of a letter in a box, on average."""

THIN = 1.0
"""Pixels; what is thinner is left out."""

COLOURS = {  # layer: its colour on light pages and on dark ones
    "workflow and steps": ("#f4a6c0", "#a8375f"),
    "workflow loop": ("#f6c177", "#8f5a10"),
    "engine": ("#9ecbff", "#1f5fa8"),
    "codec": ("#c3b1f5", "#6243b5"),
    "model and its checks": ("#b4dfb0", "#2f7036"),
    "api and client": ("#a8dedd", "#1f7070"),
    "store, Python": ("#e3d26f", "#74650c"),
    "SQLite statements": ("#e8b08c", "#8a4a1f"),
    "COMMIT and its sync": ("#f08c84", "#a3302a"),
    "asyncio": ("#d0d7de", "#4b535d"),
    "waiting": ("#eaeef2", "#30363d"),
}


@dataclass
class Node:
    """A function on the stack, and what it calls."""

    name: str
    share: float = 0.0
    inside: dict[str, Node] = field(default_factory=dict[str, "Node"])

    @property
    def layer(self) -> str:
        return self.name.partition("|")[0]


def tree(stacks: dict[str, float]) -> Node:
    """Stacks as a tree; shares add up to the root's."""
    root = Node("")
    for stack, share in stacks.items():
        node = root
        node.share += share
        for name in stack.split(";") if stack else ():
            node = node.inside.setdefault(name, Node(name))
            node.share += share
    return root


def flame(title: str, contests: dict[str, dict[str, float]]) -> str:
    """The SVG of some stacks, below each other, each under a heading."""
    lines = [f'<text class="title" x="{EDGE}" y="26">{escape(title)}</text>']
    y = TOP
    for number, layer in enumerate(COLOURS):
        x, line = EDGE + number % 6 * 156, y + number // 6 * 20
        lines.append(f'<rect class="l{number}" x="{x}" y="{line}" width="12" height="12" rx="2"/>')
        lines.append(f'<text x="{x + 17}" y="{line + 10}">{escape(layer)}</text>')
    y += 20 * (-(-len(COLOURS) // 6)) + 8
    for name, stacks in contests.items():
        lines.append(f'<text class="head" x="{EDGE}" y="{y + 13}">{escape(name)}</text>')
        y += 20
        root = tree(stacks)
        lines += _boxes(root, EDGE, y, (WIDTH - 2 * EDGE) / (root.share or 1.0))
        y += ROW * (_depth(root) - 1) + 14
    text = "\n".join(f"  {line}" for line in lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'height="{y}" role="img" aria-label="{escape(title)}">\n'
        f"  <style>{_style()}  </style>\n{text}\n</svg>\n"
    )


def _style() -> str:
    layers = list(COLOURS.values())
    light = "\n".join(f"  .l{n} {{ fill: {colour}; }}" for n, (colour, _) in enumerate(layers))
    dark = "\n".join(f"    .l{n} {{ fill: {colour}; }}" for n, (_, colour) in enumerate(layers))
    return f"""
  text {{ font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }}
  .title {{ font-size: 16px; font-weight: 600; }}
  .head {{ font-size: 13px; font-weight: 600; }}
  .in {{ font-size: 11px; }}
{light}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #f0f6fc; }}
{dark}
  }}
"""


def _boxes(node: Node, x: float, y: int, scale: float) -> Iterator[str]:
    number = {layer: number for number, layer in enumerate(COLOURS)}
    for inner in sorted(node.inside.values(), key=lambda one: -one.share):
        width = inner.share * scale
        if width < THIN:
            continue
        function = inner.name.partition("|")[2]
        told = f"{escape(function)} ({escape(inner.layer)}): {inner.share * 100:.1f} %"
        yield (
            f'<rect class="l{number.get(inner.layer, len(number) - 1)}" x="{x:.1f}" y="{y}" '
            f'width="{max(width - 0.5, 0.5):.1f}" height="{ROW - 1}" rx="1"><title>{told}</title></rect>'
        )
        if shown := _fitting(function, width):
            yield f'<text class="in" x="{x + 3:.1f}" y="{y + 12}">{escape(shown)}</text>'
        yield from _boxes(inner, x, y + ROW, scale)
        x += width


def _fitting(function: str, width: float) -> str:
    """As much of a name as a box has room for: all, without its module, the beginning, or nothing."""
    room = int((width - 6) / LETTER)
    for text in (function, function.rpartition(": ")[2]):
        if len(text) <= room:
            return text
    short = function.rpartition(": ")[2].rpartition(".")[2]
    return short if len(short) <= room else f"{short[: room - 1]}…" if room > 4 else ""


def _depth(node: Node) -> int:
    return 1 + max((_depth(inner) for inner in node.inside.values()), default=0)
