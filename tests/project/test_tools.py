"""The scripts in tools/ behind `./dev check`, `./dev prove` and `./dev bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import modules, portable

KNOWN = ["one", "two"]


@pytest.mark.parametrize(
    "args, names, rest",
    [
        ([], ["one", "two"], []),
        (["--seed", "two"], ["one", "two"], ["--seed", "two"]),
        (["two"], ["two"], []),
        (["two", "one", "--x"], ["two", "one"], ["--x"]),
        (["two", "argument"], ["two"], ["argument"]),
        (["three"], [], ["three"]),
    ],
)
def test_names_come_before_arguments(args: list[str], names: list[str], rest: list[str]) -> None:
    """Known names in front choose modules; all that follows is for the modules."""
    assert modules.split_names(KNOWN, args) == (names, rest)


@pytest.mark.parametrize("args", [["--json", "f", "-v"], ["-v", "--json=f"]])
def test_json_is_taken_out_of_the_arguments(args: list[str]) -> None:
    """The file asked for is written once, from the results of all modules."""
    assert modules.take_json(args) == ("f", ["-v"])


def test_results_are_merged(tmp_path: Path) -> None:
    """Several benchmarks give one object."""
    (tmp_path / "a.json").write_text(json.dumps({"a": {"value": 1}}))
    (tmp_path / "b.json").write_text(json.dumps({"b": {"value": 2}}))
    assert modules.merge_json(sorted(tmp_path.iterdir())) == {
        "a": {"value": 1},
        "b": {"value": 2},
    }


def test_private_modules_are_not_run(tmp_path: Path) -> None:
    """Only modules that stand for something of their own are campaigns or benchmarks."""
    for name in ("one.py", "_shared.py", "__init__.py", "conftest.py", "notes.md"):
        (tmp_path / name).touch()
    assert modules.modules_in(tmp_path) == ["one"]


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://" + ".".join(["pypi", "org"]) + "/simple",
        "see files." + ".".join(["pythonhosted", "org"]),
        "open('/" + "home/jane/x')",
        "cd /" + "root/x",
        "cd /srv/work/checkout/src",
    ],
)
def test_what_ties_a_file_to_one_machine_is_found(line: str) -> None:
    """Hosts of registries, home folders and the checkout's own path are findings."""
    pattern = portable.forbidden(Path("/srv/work/checkout"))
    assert list(portable.find(f"fine\n{line}\n", pattern)) == [(2, line)]


@pytest.mark.parametrize("line", ["~/x", "docs/home/index.md", "/homework/", "src/root/x"])
def test_relative_paths_are_fine(line: str) -> None:
    """A folder of the project may be called home or root."""
    assert list(portable.find(line, portable.forbidden(Path("/srv/work/checkout")))) == []
