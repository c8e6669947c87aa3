"""Links between pages lead somewhere: to a file that is there, and to a heading in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FENCED = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1`*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def pages() -> list[Path]:
    """Every page that a reader may come across."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def links_of(text: str) -> Iterator[str]:
    """The targets of a page's links, without those in code."""
    yield from LINK.findall(CODE.sub("", FENCED.sub("", text)))


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = HEADING.findall(FENCED.sub("", text))
    kept = ("".join(c for c in title.lower() if c.isalnum() or c in " -_") for title in titles)
    return {title.replace(" ", "-") for title in kept}


def leads_somewhere(page: Path, link: str) -> bool:
    """Whether a link of a page names a file of the project and, behind `#`, one of its headings."""
    path, _, anchor = link.partition("#")
    if re.match(r"[a-z]+:", path):
        return True  # the world outside is not ours to check
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or anchor in anchors_of(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link between pages is alive."""
    links = links_of(page.read_text(encoding="utf-8"))
    assert [link for link in links if not leads_somewhere(page, link)] == []


def test_every_page_can_be_reached() -> None:
    """The map of the docs, or a page that it leads to, has a link to each page."""
    seen: set[Path] = set()
    ahead = [ROOT / "README.md", ROOT / "docs" / "index.md"]
    while ahead:
        page = ahead.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = links_of(page.read_text(encoding="utf-8"))
        ahead += [page.parent / link.partition("#")[0] for link in links]
    assert [str(page.relative_to(ROOT)) for page in pages() if page not in seen] == []


def test_links_in_code_are_no_links() -> None:
    """Code may look like a link; headings become anchors as on GitHub."""
    text = "# The `end` (now)\n\n[a](b.md#c) `[d](e)`\n\n```python\n# no heading\n[f](g)\n```\n"
    assert list(links_of(text)) == ["b.md#c"]
    assert anchors_of(text) == {"the-end-now"}
