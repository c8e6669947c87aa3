"""What users may import: from where, under which name, and what an import loads.

The table of docs/reference/public-names.md is the rule; these tests compare it with the code, the docs and
the examples.
"""

from __future__ import annotations

import ast
import importlib
import pickle  # noqa: TID251 - users pickle values, outlast does not
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import outlast
from outlast import errors

ROOT = Path(__file__).parents[2]
RULE = ROOT / "docs" / "reference" / "public-names.md"
PUBLIC = re.findall(r"^\| `(outlast[\w.]*)` \|", RULE.read_text(), re.MULTILINE)
OPEN_PACKAGES = ("outlast.model.", "outlast.testkit.", "outlast.contrib.")
"""Packages of which single modules are public too."""

EXPORTED = [name for name in outlast.__all__ if name not in ("errors", "sync")]


def loaded_by(program: str) -> set[str]:
    """The modules that a program loads in a process of its own, beyond asyncio and msgspec."""
    code = f"import sys, asyncio, msgspec\nbefore = set(sys.modules)\n{program}\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def below(modules: set[str], *packages: str) -> set[str]:
    """Those of the modules that are in one of these parts of outlast."""
    prefixes = tuple(f"outlast.{package}." for package in packages)
    return {name for name in modules if f"{name}.".startswith(prefixes)}


# -- what an import loads ---------------------------------------------------------------------------


def test_the_import_loads_the_errors_alone() -> None:
    """`import outlast` costs a program next to nothing, whichever part it uses afterwards."""
    assert loaded_by("import outlast") == {"outlast", "outlast._version", "outlast.errors"}


OUTSIDE_OF_WORKFLOWS = (
    "app", "cli", "client", "codecs", "contrib", "query", "queues", "schedules", "stores", "sync",
    "testing", "testkit", "transfer", "worker", "engine.runner", "engine.steps",
)  # fmt: skip


def test_declaring_workflows_loads_no_app() -> None:
    """A module of workflows and steps that a client imports loads what a declaration needs."""
    found = loaded_by("from outlast import Retry, step, workflow")
    assert below(found, *OUTSIDE_OF_WORKFLOWS) == set()
    assert len(found) <= 75


def test_a_client_loads_no_worker() -> None:
    """A web process that starts and reads runs loads neither an engine's loops nor a command line."""
    found = loaded_by("from outlast import Client")
    unused = ("app", "cli", "query", "queues", "schedules", "stores", "transfer", "worker")
    assert below(found, *unused) == set()


EMBEDDED = """
import outlast

@outlast.step
async def double(number: int) -> int:
    return 2 * number

@outlast.workflow
async def calculate(number: int) -> int:
    return await double(number)

async def main():
    async with outlast.App("sqlite:///{path}", workflows=[calculate]) as app:
        run = await app.start(calculate(21))
        assert await run.result() == 42

asyncio.run(main())
"""


def test_an_embedded_app_loads_no_other_store(tmp_path: Path) -> None:
    """An app that runs a workflow on SQLite loads no other store, no queue service and no command line."""
    found = loaded_by(EMBEDDED.format(path=(tmp_path / "shop.db").as_posix()))
    others = ("stores.postgres", "stores.redis", "stores.memory", "queues", "contrib")
    assert below(found, *others, "cli", "query", "transfer", "sync", "testing", "testkit") == set()
    assert "outlast.stores.sqlite" in found


# -- which module a name says -----------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_name_says_outlast(name: str) -> None:
    """Tracebacks, reprs and pickles name what users import, and no file of the package."""
    exported = getattr(outlast, name)
    assert exported.__module__ == "outlast"
    assert pickle.loads(pickle.dumps(exported)) is exported


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_says_errors(name: str) -> None:
    """Errors are in `outlast.errors`, also in stored histories."""
    assert getattr(errors, name).__module__ == "outlast.errors"


def test_values_survive_a_pickle() -> None:
    """Values of exported classes are pickled and shown under the exported name."""
    values = [
        outlast.Run(id="order-1"),
        outlast.Event(type="step.started", run_id="order-1"),
        outlast.QueuePolicy(queue="mails", rate=outlast.Rate(5)),
        outlast.QueueOptions("mails", key="a"),
        outlast.Retry(attempts=2),
        outlast.Status.HALTED,
    ]
    for value in values:
        assert pickle.loads(pickle.dumps(value)) == value
        assert f"coutlast\n{type(value).__name__}\n".encode() in pickle.dumps(value, protocol=0)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    """Names are loaded on first use, and a typing error is still reported as such."""
    with pytest.raises(AttributeError, match="module 'outlast' has no attribute 'wrokflow'"):
        _ = outlast.wrokflow  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    assert set(outlast.__all__) <= set(dir(outlast))


def test_no_exported_name_is_a_module_too() -> None:
    """The import of a module `outlast.step` would replace the function `outlast.step`."""
    modules = {module.name for module in pkgutil.iter_modules(outlast.__path__)}
    assert modules & set(outlast.__all__) == {"errors", "sync"}


# -- the boundary -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_lists_its_names(name: str) -> None:
    """`__all__` of a public module has all that it imports for its users, and nothing that is missing."""
    module = importlib.import_module(name)
    if name == "outlast.testkit":
        return  # only its modules
    listed = module.__all__
    assert list(listed) == sorted(
        listed, key=lambda one: (not one.isupper(), one[0].islower(), one)
    )
    assert [
        one for one in listed if name != "outlast.contrib.django" and not hasattr(module, one)
    ] == []
    tree = ast.parse(Path(str(module.__file__)).read_text())
    given = {
        one.asname or one.name
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom)
        if (statement.module or "").startswith(f"{name}.")
        for one in statement.names
    }
    assert {one for one in given if not one.startswith("_")} <= {*listed, "__version__"}


def is_public(module: str) -> bool:
    """Whether users may import this module."""
    return module in PUBLIC or module.startswith(OPEN_PACKAGES)


PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.py")),
]


def test_docs_and_examples_import_public_names_only() -> None:
    """What a page shows, its readers may rely on."""
    private = []
    for page in PAGES:
        for module, names in re.findall(
            r"^ *from (outlast[\w.]*) import (\([^)]*\)|.*)$", page.read_text(), re.MULTILINE
        ):
            if module in PUBLIC:
                known = set(importlib.import_module(module).__all__)
                wanted = set(re.findall(r"\w+", names.split("#")[0].partition(" as ")[0])) - known
                if all(is_public(f"{module}.{name}") for name in wanted):
                    continue
            elif is_public(module):
                continue
            private.append(f"{page.relative_to(ROOT)}: from {module} import {names}")
    assert private == []
