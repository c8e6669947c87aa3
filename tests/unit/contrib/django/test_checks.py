"""What is wrong is said at the start: settings, databases, routers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from outlast.codecs import JsonCodec
from outlast.contrib.django import checks, runs
from outlast.contrib.django.checks import check_database, check_settings
from outlast.contrib.django.conf import Settings, read_settings
from outlast.contrib.django.models import Event, Run
from outlast.contrib.django.store import worker_store
from outlast.errors import InvalidValue, WorkflowMisuse
from outlast.stores.postgres.schema import latest as latest_postgres
from outlast.stores.sqlite.schema import latest as latest_sqlite
from tests.unit.contrib.django.places import SQLITE, another, made, use
from tests.unit.contrib.django.settings import on_sqlite
from tests.unit.contrib.django.shop.workflows import doubled

MYSQL: dict[str, object] = {"ENGINE": "django.db.backends.dummy"}


def found(setting: Any) -> list[str]:
    """The ids of what the checks say with that setting."""
    with override_settings(OUTLAST=setting):
        return [str(message.id) for message in check_settings()]


def found_on(options: dict[str, Any]) -> list[str]:
    """The ids of what the checks say of such a database."""
    with another("other", options):
        return found({"DATABASE": "other"})


@pytest.mark.parametrize(
    "setting",
    [
        ["a list"],
        {"DATABSE": "default"},
        {"DATABASE": "nowhere"},
        {"WORKFLOWS": "shop.workflows"},
        {"QUEUES": [7]},
        {"CONCURRENCY": 0},
        {"LEASE": -1},
        {"LEASE": "long"},
        {"CODEC": "nowhere.codec"},
        {"CODEC": "builtins.object"},
        {"SCHEMA": 7},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be(setting: Any) -> None:
    """Each is an error of `check`, and of whoever reads it all the same."""
    assert found(setting) == ["outlast.E001"]
    with override_settings(OUTLAST=setting), pytest.raises(InvalidValue, match="OUTLAST"):
        read_settings()


def test_settings_that_are_right() -> None:
    """Nothing is said of them."""
    assert found({}) == []
    assert found({"QUEUES": ["mail"], "LEASE": 10, "CODEC": "outlast.codecs.JsonCodec"}) == []


def test_workflows_that_cannot_be_loaded() -> None:
    """A module that is not there is found at the start, not by the worker at night."""
    assert found({"WORKFLOWS": ["shop.nowhere"]}) == ["outlast.E008"]


def test_a_database_that_is_neither() -> None:
    """The check says so, and so does whoever needs the store."""
    assert found_on(MYSQL) == ["outlast.E002"]
    with another("other", MYSQL), pytest.raises(InvalidValue, match="PostgreSQL and on SQLite"):
        worker_store(Settings(database="other", codec=JsonCodec()))


def test_autocommit_off_by_the_settings() -> None:
    """What is written outside of a transaction would never be there."""
    other = {**on_sqlite("x.db"), "AUTOCOMMIT": False}
    assert found_on(other) == ["outlast.E004"]


def test_a_database_in_memory() -> None:
    """Nothing in it outlasts anything."""
    assert found_on(on_sqlite(":memory:")) == ["outlast.E006"]


def test_transactions_that_begin_without_the_lock() -> None:
    """A warning, with what to set."""
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": "x.db"}
    assert found_on(other) == ["outlast.W001"]


def test_isolation_that_is_too_strict() -> None:
    """A statement would not see what was committed while it waited."""
    other = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "x",
        "OPTIONS": {"isolation_level": 4},
    }
    assert found_on(other) == ["outlast.E007"]


ON_POSTGRES: dict[str, Any] = {"ENGINE": "django.db.backends.postgresql", "NAME": "x"}


def test_a_driver_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django takes psycopg2 where psycopg 3 is not installed: our statements need the newer one."""
    with another("other", ON_POSTGRES):
        monkeypatch.setattr(connections["other"], "Database", ModuleType("psycopg2"))
        assert found({"DATABASE": "other"}) == ["outlast.E003"]


def test_the_extra_for_postgres_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by `check`, with what to install, and not by the first view that starts a run."""
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    assert found_on(ON_POSTGRES) == ["outlast.E009"]
    assert found_on(on_sqlite("x.db")) == []


class Replica:
    """Reads go to a database that has nothing of ours."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if db == "other" else None


def test_a_router_with_a_replica(alias: str, tmp_path: Path) -> None:
    """The read model and the store read the database of the settings; a router that keeps our tables
    out of it is an error."""
    with (
        another("replica", on_sqlite(str(tmp_path / "replica.db"))),
        override_settings(DATABASE_ROUTERS=["tests.unit.contrib.django.test_checks.Replica"]),
    ):
        runs.start(doubled(1), id="r")
        run = Run.objects.get(id="r")
        assert [event.run.id for event in run.events.all()] == ["r"]
        assert found_on(on_sqlite("x.db")) == ["outlast.E005"]


def test_tables_that_are_not_there(tmp_path: Path) -> None:
    """`check --database` says what to run."""
    with another("other", on_sqlite(str(tmp_path / "n.db"))), use("other"):
        (message,) = check_database(databases=["other"])
        assert "migrate outlast --database other" in str(message.hint)
        call_command("migrate", "outlast", database="other", verbosity=0)
        assert check_database(databases=["other"]) == []


def test_the_tables_can_be_taken_away_and_made_again(alias: str) -> None:
    """Backwards and forwards."""
    call_command("migrate", "outlast", "zero", database=alias, verbosity=0)
    assert not any("outlast" in name for name in connections[alias].introspection.table_names())
    call_command("migrate", "outlast", database=alias, verbosity=0)
    runs.start(doubled(1), id="r")
    assert Event.objects.count() == 1


def test_migrations_are_complete() -> None:
    """The models need no other, and the newest names the newest of our SQL files."""
    made(SQLITE)
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
    from outlast.contrib.django.migrations import __path__ as folder

    newest = max(Path(folder[0]).glob("0*.py")).stem
    migration = import_module(f"outlast.contrib.django.migrations.{newest}").Migration
    assert migration.operations[0].numbers == {
        "postgresql": latest_postgres(),
        "sqlite": latest_sqlite(),
    }


def test_rows_are_read_only(alias: str) -> None:
    """Who wants to change a run is told how."""
    runs.start(doubled(1), id="r")
    run = Run.objects.get()
    for act in (run.save, run.delete, Run.objects.all().delete):
        with pytest.raises(WorkflowMisuse, match="runs"):
            act()
    with pytest.raises(WorkflowMisuse, match="runs"):
        Run.objects.update(status="completed")
    with pytest.raises(WorkflowMisuse, match="runs"):
        Run.objects.create(id="x")
