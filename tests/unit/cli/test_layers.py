"""What the command line may use, and who may use what it uses."""

from __future__ import annotations

from tests.project.test_project import SOURCE, imported, python_files


def test_click_is_imported_by_the_command_line_alone() -> None:
    """A program that uses outlast as a library never loads it."""
    users = {path.relative_to(SOURCE) for path in python_files(SOURCE) if "click" in imported(path)}
    assert {path.parts[0] for path in users} == {"cli"}


def test_the_language_of_queries_needs_no_more_than_the_core() -> None:
    """Whoever shows runs to people may use it: msgspec and the standard library are enough."""
    used = {name for path in python_files(SOURCE / "query") for name in imported(path)}
    assert not used & {"click", "asyncpg", "redis"}


def test_files_are_short() -> None:
    """A command is read in one go."""
    long = {
        path.name: lines
        for folder in ("cli", "query")
        for path in python_files(SOURCE / folder)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 450
    }
    assert long == {}
