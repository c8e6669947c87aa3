"""What the package promises as a whole: light to install, light to import, no code from bytes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src" / "outlast"

IMPORT = """
import sys
before = set(sys.modules)
import outlast
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


@pytest.mark.proves("M-22")
def test_import_loads_msgspec_and_nothing_else() -> None:
    """`import outlast` pulls in no extra, nor any other package beside msgspec."""
    command = [sys.executable, "-c", IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    foreign = set(done.stdout.split()) - sys.stdlib_module_names
    foreign -= {"_missing_stdlib_info"}  # traceback's own, written by who builds Python 3.15
    # msgspec itself looks for typing_extensions and takes it if somebody else has installed it
    assert foreign <= {"outlast", "msgspec", "typing_extensions"}


WITHOUT_POSIX = """
import asyncio, os, sys
for name in ("fork", "register_at_fork", "killpg", "setsid"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("fcntl", "pwd", "resource", "termios"):
    sys.modules[name] = None
import outlast

@outlast.step
async def double(number: int) -> int:
    return 2 * number

@outlast.workflow
async def calculate(number: int) -> int:
    return await double(number)

async def main():
    async with outlast.App("memory://", workflows=[calculate]) as app:
        await app.start(calculate(21), id="one")
        print(await app.get("one").result(timeout=30))

asyncio.run(main())
"""


def test_import_and_the_memory_store_need_no_posix() -> None:
    """Where there is neither fork nor fcntl, as on Windows, a workflow runs on the memory store."""
    command = [sys.executable, "-c", WITHOUT_POSIX]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("42", "")


@pytest.mark.parametrize("has_lock", [True, False])
def test_a_python_without_its_lock_is_warned_of(has_lock: bool) -> None:
    """A free-threaded Python has not been tested: that is said at import, with what to do about it."""
    code = f"import sys; sys._is_gil_enabled = lambda: {has_lock}; import outlast"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if has_lock:
        assert done.stderr == ""
    else:
        assert "RuntimeWarning: outlast is not tested on free-threaded Python" in done.stderr
        assert "PYTHON_GIL=1" in done.stderr


# The rest of the import rules, on the package's own modules, are import-linter's (pyproject.toml).
FOREIGN_ALLOWED = {
    "errors": set[str](),
    "model": {"msgspec"},
    "ports": {"msgspec"},
    "engine": {"msgspec"},
    "codecs": {"msgspec"},
    "stores/memory": {"msgspec"},
    "stores/sqlite": {"msgspec"},
}


@pytest.mark.proves("M-22")
@pytest.mark.parametrize("part", FOREIGN_ALLOWED)
def test_core_uses_the_standard_library_and_msgspec(part: str) -> None:
    """The core imports no third-party package, not even lazily, other than msgspec."""
    used = {name for path in python_files(SOURCE / part) for name in imported(path)}
    assert used - sys.stdlib_module_names - {"outlast"} <= FOREIGN_ALLOWED[part]


@pytest.mark.parametrize(
    "folder", [TESTS, SOURCE / "testing", SOURCE / "testkit"], ids=["tests", "testing", "kit"]
)
def test_every_test_says_what_it_shows(folder: Path) -> None:
    """A test is a small story, and its docstring states the one behaviour that it shows."""
    silent = [
        f"{path.relative_to(folder)}:{node.lineno} {node.name}"
        for path in python_files(folder)
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


def python_files(path: Path) -> list[Path]:
    """Return a module, or all modules of a package."""
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level name of everything that a module imports, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
