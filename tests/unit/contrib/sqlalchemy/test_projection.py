"""The seed's tables as a projection: written in the commit, whoever commits; read by the ORM."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from msgspec import Raw
from sqlalchemy import MetaData, Text, inspect, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

import outlast
from outlast.contrib.sqlalchemy import (
    EntryMixin,
    ExecutionMixin,
    Projection,
    make_tables,
    models,
    store_of,
)
from outlast.errors import InvalidValue
from outlast.model import Entry, Event, Run, Status
from outlast.model.query import RunQuery
from outlast.ports import Store
from outlast.stores.postgres import PostgresStore
from outlast.stores.sqlite import SqliteStore
from tests.stores.postgres.places import SCHEMA, ask, direct
from tests.unit.contrib.sqlalchemy.places import dispose, engine_of
from tests.unit.contrib.sqlalchemy.shop import run_on

KINDS = [
    pytest.param("postgresql+asyncpg", marks=pytest.mark.server),
    pytest.param("postgresql+psycopg threads", marks=pytest.mark.server),
    "sqlite+aiosqlite",
]
OWN = f"{SCHEMA}_projected"
NAMES = Projection(f"runs_of_{SCHEMA}", f"lines_of_{SCHEMA}")


class Base(DeclarativeBase):
    """The application's models."""


class Execution(ExecutionMixin, Base):
    """A run, with a column and a relationship of the application's."""

    __tablename__ = NAMES.executions
    remark: Mapped[str | None] = mapped_column(Text)
    lines: Mapped[list[Line]] = relationship(order_by="Line.timestamp")


class Line(EntryMixin, Base):
    """An audit line."""

    __tablename__ = NAMES.entries
    __executions__ = NAMES.executions


@pytest.fixture
async def engine(kind: str, tmp_path: Path) -> AsyncIterator[Any]:
    """An engine of an application whose database is empty."""
    if kind.startswith("postgresql"):
        await ask(f"DROP SCHEMA IF EXISTS {OWN} CASCADE", url=direct())
    engine = engine_of(kind, tmp_path)
    await run_on(engine, Base.metadata.drop_all)
    yield engine
    await run_on(engine, Base.metadata.drop_all)
    await dispose(engine)


async def rows(engine: Any, work: Any) -> Any:
    """What the application reads, by its own models."""
    return await run_on(engine, lambda connection: work(Session(connection)))


@outlast.step
async def double(number: int) -> int:
    return 2 * number


@outlast.step
async def fails() -> None:
    raise ValueError("no")


@outlast.workflow
async def works(number: int) -> int:
    doubled = await double(number)
    outlast.publish(doubled=doubled, name="ä" * 300, many=list(range(100)))
    with suppress(Exception):
        await fails()
    return doubled + await outlast.wait_for_signal("more", int)


def plain(engine: Any, kind: str, tmp_path: Path) -> Store:
    """A store on the same tables that knows nothing of SQLAlchemy."""
    if kind.startswith("sqlite"):
        return SqliteStore(tmp_path / "app.db", prefix="outlast_")
    return PostgresStore(direct(), schema=OWN)


@pytest.mark.proves("C-27", "D-22", "D-29", "D-33", "D-37")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_and_its_lines_are_models_of_the_application(
    engine: Any, kind: str, tmp_path: Path
) -> None:
    """With columns of theirs, which stay. What was there before is there too, and it does not matter
    whose worker commits: here a plain one does."""
    await run_on(engine, Base.metadata.create_all)
    async with store_of(engine, schema=OWN) as store:
        await store.append("old", [Event(type="x", run_id="old")])
    async with store_of(engine, schema=OWN, projection=(Execution, Line)) as store:
        async with (
            plain(engine, kind, tmp_path) as worker,
            outlast.App(worker, workflows=[works]) as app,
        ):
            run = await app.start(works(4), id="new")
            await run.signal("more", 1)
            assert await run.result(timeout=60) == 9
            expected = await app.get("new").entries()
            recorded = await app.get("new").status()

        def look(session: Session) -> None:
            assert set(session.scalars(select(Execution.id))) == {"old", "new"}
            new = session.get_one(Execution, "new")
            assert (new.workflow_id, new.status, new.current_step) == (
                "works",
                "completed",
                "fails",
            )
            assert (new.input, new.result, new.error) == ({"number": 4}, 9, None)
            assert new.ctx == {"doubled": 8, "name": "ä" * 300, "many": list(range(100))}
            assert _utc(new.created_at) == recorded.created_at
            assert _utc(new.updated_at) == recorded.updated_at
            found = [
                (e.id, e.step_id, e.step_type, e.action, e.duration_ms, e.input, e.output, e.error)
                for e in new.lines
            ]
            assert sorted(found) == sorted(
                (e.id, e.step_id, e.step_type, e.action, e.duration_ms, _json(e.input),
                 _json(e.output), e.error)
                for e in expected
            )  # fmt: skip
            assert len(found) == 3
            new.remark = "seen"
            session.commit()

        await rows(engine, look)
        assert await rows(engine, lambda s: s.get_one(Execution, "new").remark) == "seen"
        assert await store.delete("new")
        assert await rows(engine, lambda s: s.scalars(select(Execution.id)).all()) == ["old"]
        assert await rows(engine, lambda s: s.scalars(select(Line.id)).all()) == []


@pytest.mark.proves(
    "D-05", "D-06", "D-07", "D-08", "D-09", "D-10", "D-11", "D-12", "D-23", "D-24", "D-25", "D-26",
    "D-27", "D-28", "D-30", "D-31", "D-38",
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
async def test_the_seven_operations_work_on_them(engine: Any, kind: str) -> None:
    """Save, load, record, entries, find, delete and ids: the tables say the same after each."""
    metadata = MetaData()
    executions, entries = make_tables(metadata, executions=NAMES.executions, entries=NAMES.entries)
    await run_on(engine, metadata.create_all)

    def read(table: Any) -> Any:
        order = table.c.timestamp if "timestamp" in table.c else table.c.created_at
        return run_on(
            engine, lambda c: [r._asdict() for r in c.execute(select(table).order_by(order))]
        )

    async with store_of(engine, schema=OWN, projection=NAMES) as store:
        first = Run(id="e-1", workflow="w", status=Status.RUNNING, current_step="one")
        saved = await store.save(first)
        assert saved.id == "e-1"
        [row] = await read(executions)
        assert (row["status"], row["input"], row["ctx"]) == (
            "running",
            {},
            {},
        )  # NULL reads as empty
        assert (row["result"], row["halt_data"]) == (None, None)
        born = row["created_at"]
        await store.save(
            Run(
                id="e-1",
                workflow="w",
                status=Status.HALTED,
                halt_data=Raw(b'{"ask": "who?"}'),
                ctx={"n": Raw(b"1"), "odd": Raw(b'"\\u0000"')},
                recover_to="one",
                error="later",
            )
        )
        loaded = await store.find_one("e-1")
        assert loaded is not None
        assert loaded.status is Status.HALTED
        assert await store.find_one("nobody") is None
        [row] = await read(executions)
        assert row["created_at"] == born
        assert row["updated_at"] >= born
        assert (row["status"], row["recover_to"], row["error"]) == ("halted", "one", "later")
        assert row["halt_data"] == {"ask": "who?"}
        assert row["ctx"]["n"] == 1
        for number, second in ((2, 2), (1, 1)):
            at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
            line = Entry(run_id="e-1", step_id=f"s{number}", action="completed", timestamp=at)
            await store.record(line)
        assert [line.step_id for line in await store.entries("e-1")] == ["s1", "s2"]
        found = await read(entries)
        assert [(line["execution_id"], line["step_id"]) for line in found] == [
            ("e-1", "s1"),
            ("e-1", "s2"),
        ]
        await store.save(Run(id="e-2", workflow="w"))
        query = RunQuery(workflow="w", status=frozenset({Status.HALTED}))
        assert [run.id for run in (await store.find(query)).items] == ["e-1"]
        newest = RunQuery(workflow="w", limit=1)
        assert [run.id for run in (await store.find(newest)).items] == ["e-2"]
        first_halted = RunQuery(status=frozenset({Status.HALTED}), limit=1)
        assert [run.id for run in (await store.find(first_halted)).items] == ["e-1"]
        assert set(await store.run_ids()) == {"e-1", "e-2"}
        assert await store.delete("e-1") is True
        assert await store.delete("e-1") is False
        assert [row["id"] for row in await read(executions)] == ["e-2"]
        assert await read(entries) == []


@pytest.mark.proves("D-32", "D-33", "D-34")
@pytest.mark.parametrize("kind", KINDS)
async def test_the_ready_migration_leaves_nothing_for_autogenerate(engine: Any, kind: str) -> None:
    """Up, compared with the metadata, a run, and down again."""
    metadata = MetaData()
    make_tables(metadata, executions=NAMES.executions, entries=NAMES.entries)

    def up(connection: Any) -> None:
        models.upgrade(Operations(MigrationContext.configure(connection)), NAMES)

    await run_on(engine, up)
    async with store_of(engine, schema=OWN, projection=NAMES) as store:
        await store.save(Run(id=str(uuid.uuid4()), workflow="w"))

    def compare(connection: Any) -> Any:
        def ours(name: str | None, type_: str, parents: Any) -> bool:
            mine = type_ != "table" or name in metadata.tables or kind.startswith("sqlite")
            return mine and models.include_name(name, type_, parents)

        context = MigrationContext.configure(
            connection, opts={"include_name": ours, "compare_server_default": True}
        )
        kinds = {
            column["name"]: str(column["type"])
            for column in inspect(connection).get_columns(NAMES.executions)
        }
        assert kinds["input"] == ("JSON" if kind.startswith("sqlite") else "JSONB")
        [key] = inspect(connection).get_foreign_keys(NAMES.entries)
        assert key["referred_table"] == NAMES.executions
        return compare_metadata(context, metadata)

    assert await run_on(engine, compare) == []

    def down(connection: Any) -> None:
        operations = Operations(MigrationContext.configure(connection))
        with pytest.raises(InvalidValue, match="prefix="):
            models.downgrade(operations, NAMES, schema=OWN, prefix='x"; drop')
        models.downgrade(operations, NAMES, schema=OWN)

    await run_on(engine, down)
    async with store_of(engine, schema=OWN) as store:
        await store.save(Run(id="after", workflow="w"))
        assert await store.exists("after")


@pytest.mark.parametrize("kind", KINDS)
async def test_bad_tables_are_told_at_the_start(engine: Any, kind: str) -> None:
    """Each says which column, and what to do."""
    with pytest.raises(InvalidValue, match="not a name of a table"):
        store_of(engine, projection=Projection('x"; drop'))
    with pytest.raises(InvalidValue, match="two models"):
        store_of(engine, projection=(Execution,))
    with pytest.raises(InvalidValue, match="there is no table"):
        await store_of(engine, schema=OWN, projection=NAMES).open()

    class NeedyBase(DeclarativeBase):
        pass

    class Customer(ExecutionMixin, NeedyBase):
        __tablename__ = "customers"
        owner: Mapped[str] = mapped_column(Text)

    with pytest.raises(InvalidValue, match="owner"):
        store_of(engine, projection=(Customer, Line))
    with pytest.raises(InvalidValue, match="no column workflow_id"):
        store_of(engine, projection=(Line, Line))
    await run_on(engine, Base.metadata.create_all)
    await run_on(
        engine,
        lambda c: c.execute(text(f"ALTER TABLE {NAMES.executions} DROP COLUMN halt_data")),
    )
    with pytest.raises(InvalidValue, match="no column halt_data"):
        await store_of(engine, schema=OWN, projection=NAMES).open()


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _json(value: Raw | None) -> Any:
    return None if value is None else json.loads(bytes(value))
