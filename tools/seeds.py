"""Writes two pages about the contracts: what each id means, and which tests prove it.

The contracts are listed in tools/seeds.toml, by family. A test names the contracts that it proves with
`@pytest.mark.proves("K-08", "I12")`. The tests are parsed, not run, so this script needs only the
standard library::

    tools/seeds.toml ───────┬──▶ docs/contributing/contract-ids.md
    tests/**, testkit/** ───┴──▶ docs/reports/contracts.md

`--check` writes nothing and fails if a page is out of date. With and without it, a marker that names
an unknown id or a range is an error. The ids of a marker are string literals; for a variable of a
comprehension (`for contract, example in EXAMPLES`), they are looked up in that list of the module.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CONTRACTS = "tools/seeds.toml"
IDS_PAGE = "docs/contributing/contract-ids.md"
PROOFS_PAGE = "docs/reports/contracts.md"
SOURCES = ("tests", "src/outlast/testing", "src/outlast/testkit")


def main(argv: list[str], root: Path = ROOT) -> int:
    """Write the pages, or check them; return 1 if something needs to be fixed."""
    parser = argparse.ArgumentParser(prog="tools/seeds.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if out of date")
    options = parser.parse_args(argv)
    families = read_families((root / CONTRACTS).read_text(encoding="utf-8"))
    proofs, problems = read_proofs(root, SOURCES)
    problems += unknown(proofs, families)
    if problems:
        print(*problems, sep="\n")
        return 1
    pages = {IDS_PAGE: render_ids(families), PROOFS_PAGE: render_proofs(families, proofs)}
    outdated = 0
    for name, text in pages.items():
        page = root / name
        if not options.check:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != text:
            print(f"{name} is out of date: run ./dev docs and commit it")
            outdated = 1
    return outdated


# -- contracts ------------------------------------------------------------------------------------


class Contract(NamedTuple):
    """Something that outlast owes: its id, what it is, and what it is called here."""

    id: str
    text: str
    name: str


class Family(NamedTuple):
    """Contracts of one origin."""

    title: str
    intro: str
    contracts: list[Contract]


def read_families(text: str) -> list[Family]:
    """Read the contracts in the order in which they stand; an id stands once."""
    families = [
        Family(family["title"], family["intro"], [Contract(*row) for row in family["contracts"]])
        for family in tomllib.loads(text)["family"]
    ]
    ids = [contract.id for family in families for contract in family.contracts]
    if twice := {id for id in ids if ids.count(id) > 1}:
        raise ValueError(f"twice in {CONTRACTS}: {', '.join(sorted(twice))}")
    return families


# -- proofs ---------------------------------------------------------------------------------------


class Proof(NamedTuple):
    """A marker: the contract that it names, and the test that it stands at."""

    contract: str
    path: str
    line: int
    test: str


def read_proofs(root: Path, folders: Iterable[str]) -> tuple[list[Proof], list[str]]:
    """Read all markers below `folders`, and what is wrong with those that cannot be read."""
    proofs: list[Proof] = []
    problems: list[str] = []
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            shown = path.relative_to(root).as_posix()
            module = ast.parse(path.read_bytes(), shown)
            for marked in _markers(module):
                try:
                    ids = _ids(marked.marker, marked.place, module)
                except ValueError as problem:
                    problems.append(f"{shown}:{marked.marker.lineno}: {problem}")
                else:
                    proofs += [Proof(id, shown, marked.marker.lineno, marked.test) for id in ids]
    return proofs, problems


def unknown(proofs: Iterable[Proof], families: Iterable[Family]) -> list[str]:
    """Say which markers name what is no contract."""
    known = {contract.id for family in families for contract in family.contracts}
    return [
        f"{proof.path}:{proof.line}: {proof.contract!r} is no contract of {CONTRACTS}: "
        "name them one by one, as they are written there"
        for proof in proofs
        if proof.contract not in known
    ]


class _Marked(NamedTuple):
    marker: ast.Call
    place: ast.AST
    test: str


def _markers(module: ast.Module) -> Iterator[_Marked]:
    """Every marker of a module, with the test, class or module that it belongs to."""
    named: dict[str, list[ast.Call]] = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign):
            name = ast.unparse(statement.targets[0])
            found = list(_calls(statement.value))
            if name == "pytestmark":
                yield from (_Marked(marker, statement, "") for marker in found)
            else:
                named[name] = found
    yield from _of_tests(module.body, "", named)


def _of_tests(
    body: list[ast.stmt], prefix: str, named: dict[str, list[ast.Call]]
) -> Iterator[_Marked]:
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        test = f"{prefix}::{node.name}"
        for decorator in node.decorator_list:
            yield from (_Marked(marker, decorator, test) for marker in _calls(decorator))
            # A decorator may use what the module has defined: `@CASES`, `parametrize("x", CASES)`.
            for used in ast.walk(decorator):
                if isinstance(used, ast.Name):
                    yield from (_Marked(marker, used, test) for marker in named.get(used.id, ()))
        if isinstance(node, ast.ClassDef):
            yield from _of_tests(node.body, test, named)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "pytest.mark.proves":
            yield inner


def _ids(marker: ast.Call, place: ast.AST, module: ast.Module) -> list[str]:
    ids: list[str] = []
    for argument in marker.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            ids.append(argument.value)
        elif isinstance(argument, ast.Name):
            ids += _iterated(argument.id, place, module)
        else:
            raise ValueError(f"proves({ast.unparse(argument)}): write the ids out, as text")
    return ids


def _iterated(name: str, place: ast.AST, module: ast.Module) -> list[str]:
    """The texts that a comprehension in `place` gives to the variable `name`, one by one."""
    for loop in (node for node in ast.walk(place) if isinstance(node, ast.comprehension)):
        names = [ast.unparse(part) for part in getattr(loop.target, "elts", [loop.target])]
        if name in names and isinstance(loop.iter, ast.Name):
            rows = _list_called(loop.iter.id, module)
            column = names.index(name)
            cells = [getattr(row, "elts", [row])[column] for row in rows]
            texts = [cell.value for cell in cells if isinstance(cell, ast.Constant)]
            if texts and len(texts) == len(rows):
                return list(dict.fromkeys(str(text) for text in texts))
    raise ValueError(f"proves({name}): write the ids out, as text")


def _list_called(name: str, module: ast.Module) -> list[ast.expr]:
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.List(elts=rows)):
                pass
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.List(elts=rows)):
                pass
            case _:
                continue
        if found == name:
            return rows
    return []


# -- the pages ------------------------------------------------------------------------------------

IDS_HEAD = """\
# Contract ids

<!-- Written by tools/seeds.py from tools/seeds.toml: run ./dev docs, do not edit. -->

Tests name the contracts that they prove: `@pytest.mark.proves("K-08", "I12")`. This page says what each id means.

| Ids | Origin |
|---|---|
| `M-…` `D-…` `R-…` `S-…` `K-…` | the five *seeds*: documents about the persistence of durable workflows, each from another project. outlast satisfies all of them, under names of its own |
| `C-…` | a decision where two seeds contradict each other |
| `I…` | an *invariant*: what holds whatever fails |
| `S…` (no hyphen) | an attack, and the defence against it |

The last column is the name in outlast: a class, a method, or how the contract is kept. To add a contract, add a row to
`tools/seeds.toml`, mark the test that proves it, and run `./dev docs`.
[Contracts and proofs](../reports/contracts.md) lists the tests of each id.
"""

PROOFS_HEAD = """\
# Contracts and proofs

<!-- Written by tools/seeds.py from tools/seeds.toml and the tests: run ./dev docs, do not edit. -->

Which tests prove which contract. [Contract ids](../contributing/contract-ids.md) says where the ids come from and what each
is called in outlast. **open** means that no test claims the contract yet.

Tests in `src/outlast/testkit/conformance/` are the conformance kit: they run once for every store
or queue, ours and yours. See [certify a store](../howto/certify-a-store.md).
"""


def render_ids(families: list[Family]) -> str:
    """The page that explains each id."""
    lines = [IDS_HEAD]
    for family in families:
        lines += [f"## {family.title}", "", family.intro.strip(), ""]
        lines += ["| ID | Contract | In outlast |", "|---|---|---|"]
        lines += [f"| {id} | {text} | {name} |" for id, text, name in family.contracts]
        lines.append("")
    return "\n".join(lines)


def render_proofs(families: list[Family], proofs: list[Proof]) -> str:
    """The page that names the tests of each id, the same for the same contracts and tests."""
    by_contract: dict[str, list[Proof]] = {}
    for proof in proofs:
        by_contract.setdefault(proof.contract, []).append(proof)
    lines = [PROOFS_HEAD, "| Family | Contracts | Proven | Open |", "|---|---:|---:|---:|"]
    for family in families:
        proven = sum(contract.id in by_contract for contract in family.contracts)
        total = len(family.contracts)
        lines.append(
            f"| [{family.title}](#{_anchor(family.title)}) "
            f"| {total} | {proven} | {total - proven} |"
        )
    for family in families:
        lines += ["", f"## {family.title}", ""]
        lines += ["| ID | Contract | Proven by |", "|---|---|---|"]
        lines += [_row(contract, by_contract.get(contract.id, [])) for contract in family.contracts]
    return "\n".join(lines) + "\n"


def _row(contract: Contract, proofs: list[Proof]) -> str:
    by_path: dict[str, set[str]] = {}
    for proof in proofs:
        by_path.setdefault(proof.path, set()).add(proof.test)
    cells = []
    for path, tests in sorted(by_path.items()):
        link = os.path.relpath(path, Path(PROOFS_PAGE).parent)
        cells.append(f"[{path}]({link})")
        cells += [f"`{test}`" for test in sorted(tests) if test]
    proven = "<br>".join(cells) or "**open**"
    return f"| {contract.id} | {contract.text} | {proven} |"


def _anchor(title: str) -> str:
    """The anchor that GitHub makes of a heading."""
    kept = (c for c in title.lower() if c.isalnum() or c in " -_")
    return "".join(kept).replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
