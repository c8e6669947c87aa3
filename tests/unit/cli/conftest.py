"""A shop, filled once and copied for each test."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from outlast.cli.main import cli
from tests.unit.cli.stage import QUIET, SHOP, environment

Invoke = Callable[..., Result]
# Before 8.2 click's runner mixed what goes to standard error into the output, unless it was asked not to.
_IS_APART = "mix_stderr" not in signature(CliRunner).parameters
APART: dict[str, Any] = {} if _IS_APART else {"mix_stderr": False}


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shop's code and a store with its runs."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    command = [sys.executable, "shop.py"]
    subprocess.run(command, cwd=folder, env=environment(), check=True, capture_output=True)
    return folder


@pytest.fixture
def shop(filled: Path, tmp_path: Path) -> Path:
    """That folder, as a copy that a test may change."""
    return shutil.copytree(filled, tmp_path / "shop")


@pytest.fixture
def outlast(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Calls `outlast` in this process, in the shop's folder, its output in a pipe."""
    monkeypatch.chdir(shop)
    for name in QUIET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    # Each test has a shop of its own, and with it its module.
    monkeypatch.delitem(sys.modules, "shop", raising=False)

    def invoke(*args: str, input: str | None = None) -> Result:
        sys.modules.pop("shop", None)
        return CliRunner(**APART).invoke(cli, args, input=input, prog_name="outlast")

    return invoke
