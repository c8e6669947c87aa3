"""A small application: a table of its own, and a workflow that pays into it."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import String, select
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import outlast

HUGE = 10**30
"""More than a database can hold."""


class Base(DeclarativeBase):
    """The application's tables."""


class Payment(Base):
    """One line of its books."""

    # Tests run in several processes, on one server.
    __tablename__ = f"payments_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    id: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[str] = mapped_column(String(50))
    amount: Mapped[int]


def book(session: Any, order: str, amount: int) -> None:
    """Two lines, each with a statement of its own."""
    session.add(Payment(order=order, amount=amount))
    session.add(Payment(order=order, amount=-amount))


@outlast.step(transactional=True, retry=outlast.Retry(attempts=2, delay=0, jitter=0))
async def pay(order: str, amount: int) -> int:
    """In a session for a loop."""
    session = outlast.connection()
    book(session, order, amount)
    if amount < HUGE:  # else the end of the step writes what it has gathered
        await session.flush()
    if amount == 13 and outlast.step_info().attempt == 1:
        raise ValueError("not on a Friday")
    return amount


@outlast.step(name="pay", transactional=True, retry=outlast.Retry(attempts=2, delay=0, jitter=0))
def pay_plainly(order: str, amount: int) -> int:
    """In a session for threads."""
    session = outlast.connection()
    book(session, order, amount)
    if amount < HUGE:
        session.flush()
    if amount == 13 and outlast.step_info().attempt == 1:
        raise ValueError("not on a Friday")
    return amount


@outlast.workflow
async def buys(order: str, amount: int) -> int:
    """Pays."""
    return await pay(order, amount)


@outlast.workflow(name="buys")
async def buys_plainly(order: str, amount: int) -> int:
    """Pays, where sessions are for threads."""
    return await pay_plainly(order, amount)


def workflow_for(engine: Any) -> Any:
    """The one whose step fits the engine."""
    return buys if isinstance(engine, AsyncEngine) else buys_plainly


async def make_tables(engine: Any) -> None:
    """Begin with empty books."""

    def make(connection: Any) -> None:
        Base.metadata.drop_all(connection)
        Base.metadata.create_all(connection)

    await run_on(engine, make)


async def booked(engine: Any) -> list[tuple[str, int]]:
    """All lines."""

    def read(connection: Any) -> list[tuple[str, int]]:
        lines = connection.execute(
            select(Payment.order, Payment.amount).order_by(Payment.order, Payment.amount)
        )
        return [(order, amount) for order, amount in lines]

    found: list[tuple[str, int]] = await run_on(engine, read)
    return found


async def run_on(engine: Any, work: Any) -> Any:
    """What a function of a connection gives, in a transaction."""
    if isinstance(engine, AsyncEngine):
        async with engine.begin() as connection:
            return await connection.run_sync(work)
    with engine.begin() as connection:
        return work(connection)
