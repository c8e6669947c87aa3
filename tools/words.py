"""Keeps the words of docs/glossary.md, and keeps others out: `./dev check words`.

Three rules:

- every file that the glossary names exists;
- no module and no class has a name on the list `names` of tools/words.toml;
- no word on the list `prose` occurs more often in the package than its limit says. A limit only ever
  becomes smaller: a word that is used less often than it may be is an error too. `./dev check --fix`
  lowers it.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "outlast"
GLOSSARY = ROOT / "docs" / "glossary.md"
LIMITS = ROOT / "tools" / "words.toml"
SOURCES = (".py", ".sql", ".lua")


def main(argv: list[str]) -> int:
    """Print what breaks a rule; 1 if anything does. With ``--fix``, lower the limits first."""
    if "--fix" in argv:
        lower_limits()
    listed = tomllib.loads(LIMITS.read_text())
    problems = [
        *missing_files(GLOSSARY.read_text()),
        *unwanted_names(frozenset(listed["names"])),
        *beyond_limits(listed["prose"]),
    ]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


def missing_files(glossary: str) -> Iterator[str]:
    """The files that the last column of the glossary names and that do not exist."""
    for line in glossary.splitlines():
        cells = line.split("|")
        if len(cells) < 5:
            continue
        for path in re.findall(r"`([\w./*]+(?:/|\.py|\.md))`", cells[3]):
            if not any([*PACKAGE.glob(path), *ROOT.glob(path)]):
                yield f"docs/glossary.md names {path}, which does not exist"


def unwanted_names(names: frozenset[str]) -> Iterator[str]:
    """Modules and classes that are called by a word of the old dialect."""
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(ROOT)
        if path.stem in names:
            yield f"{where}: {path.stem!r} is not a word of docs/glossary.md"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.lower().lstrip("_") in names:
                yield f"{where}:{node.lineno}: {node.name!r} is not a word of docs/glossary.md"


def beyond_limits(limits: dict[str, int]) -> Iterator[str]:
    """Words that occur more or less often in the package than their limit says."""
    for word, found in occurrences(limits):
        limit = limits[word]
        if found > limit:
            yield (
                f"{word!r} occurs {found} times in src/outlast, at most {limit} are allowed: name the "
                "component that acts, or use the technical word (docs/glossary.md)"
            )
        elif found < limit:
            yield f"{word!r} occurs {found} times, its limit is {limit}: ./dev check --fix lowers it"


def lower_limits() -> None:
    """Write the counts of words that occur less often than their limit into tools/words.toml."""
    text = LIMITS.read_text()
    limits: dict[str, int] = tomllib.loads(text)["prose"]
    for word, found in occurrences(limits):
        if found < limits[word]:
            text = text.replace(f'"{word}" = {limits[word]}\n', f'"{word}" = {found}\n')
    LIMITS.write_text(text)


def occurrences(words: Iterable[str]) -> Iterator[tuple[str, int]]:
    """How often each word occurs in the package."""
    texts = [path.read_text() for path in PACKAGE.rglob("*") if path.suffix in SOURCES]
    for word in words:
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
        yield word, sum(len(pattern.findall(text)) for text in texts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
