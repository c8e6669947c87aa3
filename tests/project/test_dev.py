"""The parts of `./dev` that decide something, tested without setting anything up."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load_dev() -> ModuleType:
    """Load the script as a module; it has no `.py` to its name."""
    loader = importlib.machinery.SourceFileLoader("dev_script", str(ROOT / "dev"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


dev = load_dev()


# -- arguments ------------------------------------------------------------------------------------


def test_tests_run_in_parallel_without_campaigns() -> None:
    """Plain `./dev test` leaves out what is marked `prove` and passes nothing else on."""
    assert dev.pytest_arguments([])[:2] == ["-m", "not prove"]
    assert "-n" in dev.pytest_arguments([])


def test_fast_means_without_servers() -> None:
    """`--fast` is a marker expression; pytest does not know the word."""
    arguments = dev.pytest_arguments(["-x", "--fast", "-k", "replay"])
    assert arguments[:2] == ["-m", "not prove and not server"]
    assert arguments[-3:] == ["-x", "-k", "replay"]


def test_own_marker_expression_replaces_the_default() -> None:
    """`-m prove` runs the campaigns, and `--fast` still holds."""
    assert dev.pytest_arguments(["-m", "prove or x", "a.py"])[:2] == ["-m", "(prove or x)"]
    assert dev.pytest_arguments(["-m", "prove or x", "a.py"])[-1] == "a.py"
    assert dev.pytest_arguments(["--fast", "-m", "a"])[:2] == ["-m", "(a) and not server"]


def test_own_number_of_processes_comes_last() -> None:
    """`-n 0` wins over the default, because pytest believes the last one."""
    arguments = dev.pytest_arguments(["-n", "0"])
    assert arguments.count("-n") == 2
    assert arguments[-2:] == ["-n", "0"]


def test_unknown_command_is_refused() -> None:
    """A word that is no command gives a message instead of a traceback."""
    with pytest.raises(dev.Failure, match="tset"):
        dev.main(["tset"])


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """No command can be added without a line in the help."""
    assert dev.main(["--help"]) == 0
    told = set(re.findall(r"^    \./dev (\w+)", capsys.readouterr().out, re.MULTILINE))
    assert told == {*dev.SCRIPTS, *dev.COMMANDS}


# -- the stamp ------------------------------------------------------------------------------------

MADE_FROM = {
    "version": "3.11",
    "locked": "a==1",
    "pyproject": "[project]\nx\n[tool.y]\nz",
    "root": "/a",
}


def stamp_of(made_from: Mapping[str, str]) -> str:
    """Compute the stamp of an environment."""
    stamp: str = dev.stamp_of(**{**made_from, "root": Path(made_from["root"])})
    return stamp


@pytest.mark.parametrize(
    "key, value",
    [
        ("version", "3.12"),
        ("locked", "a==2"),
        ("pyproject", "[project]\nchanged\n[tool.y]\nz"),
        ("root", "/b"),
    ],
)
def test_stamp_changes_with_what_it_is_made_from(key: str, value: str) -> None:
    """Another lock, Python, project or place of the checkout asks for a new environment."""
    assert stamp_of({**MADE_FROM, key: value}) != stamp_of(MADE_FROM)


def test_stamp_does_not_know_the_settings_of_tools() -> None:
    """A changed lint rule leaves the environment as it is."""
    changed = {**MADE_FROM, "pyproject": "[project]\nx\n[tool.y]\nchanged"}
    assert stamp_of(changed) == stamp_of(MADE_FROM)


def make_environment(folder: Path, *, stamp: str | None, runs: bool) -> Path:
    """Make something that looks like an environment."""
    (folder / "bin").mkdir(parents=True)
    if runs:
        (folder / "bin" / "python").symlink_to(sys.executable)
    else:
        (folder / "bin" / "python").symlink_to(folder / "gone")
    if stamp is not None:
        (folder / "stamp").write_text(stamp)
    return folder


@pytest.mark.parametrize(
    "stamp, runs, ready",
    [("s", True, True), ("old", True, False), (None, True, False), ("s", False, False)],
    ids=["fits", "outdated", "half-made", "its-python-is-gone"],
)
def test_environment_is_ready_only_if_it_fits_and_runs(
    tmp_path: Path, stamp: str | None, runs: bool, ready: bool
) -> None:
    """Whatever lies around from before is recognised and not used."""
    venv = make_environment(tmp_path / "venv", stamp=stamp, runs=runs)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert dev.is_ready(venv, "s", version) is ready


def test_environment_of_another_python_is_not_ready(tmp_path: Path) -> None:
    """An environment whose Python has been replaced by another version is made again."""
    venv = make_environment(tmp_path / "venv", stamp="s", runs=True)
    assert not dev.is_ready(venv, "s", "3.8")


@pytest.mark.parametrize("junk", ["folder", "file", "link", "nothing"])
def test_anything_can_be_removed(tmp_path: Path, junk: str) -> None:
    """A folder, a file or a dangling link in the way of an environment is cleared."""
    path = tmp_path / "venv"
    if junk == "folder":
        (path / "lib").mkdir(parents=True)
    elif junk == "file":
        path.write_text("junk")
    elif junk == "link":
        path.symlink_to(tmp_path / "gone")
    dev.remove(path)
    assert not path.exists()
    assert not path.is_symlink()


# -- interpreters and settings --------------------------------------------------------------------


def test_supported_versions_are_those_of_the_package() -> None:
    """`./dev` and pyproject.toml agree on the versions of Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: 3.1" in line]
    assert names == list(dev.SUPPORTED)
    # Without a cap: a Python that is newer than the tested ones is the user's to try.
    assert project["requires-python"] == f">={dev.SUPPORTED[0]}"


def test_python_that_is_not_supported_is_refused() -> None:
    """A version outside the supported ones is refused before anything is set up."""
    with pytest.raises(dev.Failure, match=r"3\.11, 3\.12, 3\.13, 3\.14, 3\.15, not on 3\.9"):
        dev.find_python("3.9")


def test_a_python_that_is_missing_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A supported version that is nowhere on the machine comes from the distribution's packages."""
    asked: list[str] = []

    def fetch(version: str, home: Path, patchelf: str) -> Path:
        asked.extend((version, str(home), Path(patchelf).name))
        return tmp_path / "python"

    monkeypatch.setattr(dev, "CACHE", tmp_path)
    monkeypatch.setattr(dev, "interpreters", lambda versions: iter(()))
    monkeypatch.setattr(dev, "fetch_uv", lambda interpreter: str(tmp_path / "bin" / "uv"))
    monkeypatch.setattr(dev, "fetch_python", fetch)
    assert dev.find_python("3.14") == (str(tmp_path / "python"), "3.14")
    assert asked == ["3.14", str(tmp_path / "pythons" / "3.14"), "patchelf"]


def test_a_python_that_cannot_be_fetched_is_told_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the packages cannot be had, the message says so and what to install."""

    def fetch(version: str, home: Path, patchelf: str) -> Path:
        raise dev.CannotFetch("apt-get is not on this system")

    monkeypatch.setattr(dev, "CACHE", tmp_path)
    monkeypatch.setattr(dev, "interpreters", lambda versions: iter(()))
    monkeypatch.setattr(dev, "fetch_uv", lambda interpreter: str(tmp_path / "bin" / "uv"))
    monkeypatch.setattr(dev, "fetch_python", fetch)
    with pytest.raises(
        dev.Failure, match=r"no Python 3\.14.*apt-get is not on this system.*Install"
    ):
        dev.find_python("3.14")


def test_what_does_not_start_is_no_interpreter(tmp_path: Path) -> None:
    """A shim that fails and a file that cannot run are passed over."""
    shim = tmp_path / "python3.11"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert dev.version_of(str(shim)) is None
    assert dev.version_of(str(tmp_path)) is None
    assert dev.version_of(str(tmp_path / "absent")) is None


def test_settings_of_pip_become_those_of_uv() -> None:
    """uv looks for packages where pip does; pip's environment variables have the last word."""
    listed = "\n".join(
        [
            ":env:.timeout='9'",
            "global.extra-index-url='\\nfile:///a/simple\\nfile:///b/simple'",
            "global.find-links='/wheels /more'",
            "global.timeout='5'",
            "install.index-url='file:///main/simple'",
            "install.no-binary='x'",
        ]
    )
    assert dev.uv_settings(listed) == {
        "UV_DEFAULT_INDEX": "file:///main/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_HTTP_TIMEOUT": "9",
        "UV_INDEX": "file:///a/simple file:///b/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_foreign_environments_are_kept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that point into another Python do not reach what ./dev starts."""
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    variables = dev.child_environment(Path("/venv/bin/python"))
    assert "PYTHONPATH" not in variables
    assert variables["VIRTUAL_ENV"] == "/venv"
    assert variables["PATH"].startswith("/venv/bin:")


def test_help_starts_on_an_interpreter_without_the_environment() -> None:
    """The script needs nothing but the standard library."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "dev"), "--help"], capture_output=True, check=True
    )
    assert b"./dev test" in done.stdout


# -- CI -------------------------------------------------------------------------------------------

STUB = """#!/usr/bin/env bash
echo "./dev $*" >> calls
[ "$1" != --python ] || [ "$3" != python ] || exit %d
[ "$1" != test ] || exit %d
"""


@pytest.mark.parametrize("is_here", [True, False])
@pytest.mark.parametrize("tests", [0, 1])
def test_ci_says_which_versions_it_did_not_test(tmp_path: Path, is_here: bool, tests: int) -> None:
    """Every supported Python is tested or named as not tested; one that cannot be had ends nothing else."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_bytes((ROOT / ".ci" / "run").read_bytes())
    (tmp_path / "dev").write_text(STUB % (0 if is_here else 1, tests))
    (tmp_path / "dev").chmod(0o755)
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    assert done.returncode == tests
    assert calls[0] == "./dev check"
    assert calls[-1] == "./dev test"
    legs = [call for call in calls if call.startswith("./dev --python") and " test --fast" in call]
    tested = {dev.SUPPORTED[0], *(call.split()[2] for call in legs)}
    assert len(legs) == is_here
    said = set(
        re.findall(r"3\.\d+", done.stdout.partition("not tested here:")[2].partition("(")[0])
    )
    assert said == set(dev.SUPPORTED) - tested
