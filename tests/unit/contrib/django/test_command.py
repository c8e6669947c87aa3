"""`manage.py outlast …` is the command, on the database of the settings."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

from outlast.contrib.django import runs
from outlast.contrib.django.testing import run_all
from tests.unit.contrib.django.shop.workflows import doubled, greeted


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command says to itself stays in the test."""
    monkeypatch.setenv("OUTLAST_STORE", "")
    monkeypatch.setenv("OUTLAST_APP", "")
    monkeypatch.delenv("OUTLAST_STORE")
    monkeypatch.delenv("OUTLAST_APP")


def test_reading_and_acting(alias: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs are listed, shown and signalled; what is not there ends with the command's own code."""
    runs.start(doubled(4), id="one")
    runs.start(greeted(), id="two")
    run_all()
    call_command("outlast", "ls", "--json")
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {run["id"]: run["status"] for run in listed} == {"one": "completed", "two": "waiting"}
    call_command("outlast", "signal", "two", "name", "--value", '"you"')
    run_all()
    capsys.readouterr()
    call_command("outlast", "show", "two", "--json")
    assert json.loads(capsys.readouterr().out)["result"] == "hello you"
    with pytest.raises(SystemExit):
        call_command("outlast", "show", "nobody")
    assert "nobody" in capsys.readouterr().err


def test_starting_by_name(alias: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The project's workflows are known by their names."""
    call_command("outlast", "start", "doubled", "--input", '{"number": 3}', "--id", "by-name")
    run_all()
    assert runs.get("by-name").result() == 6
