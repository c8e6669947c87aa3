"""What the shop knows: stock, orders, and the runs that work on them."""

from __future__ import annotations

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from outlast.contrib.sqlalchemy import EntryMixin, ExecutionMixin


class Base(DeclarativeBase):
    pass


class Book(Base):
    __tablename__ = "books"
    title: Mapped[str] = mapped_column(primary_key=True)
    stock: Mapped[int]


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(ForeignKey("books.title"))
    state: Mapped[str] = mapped_column(default="placed")
    # The run has the id of the order, so that the two are joined by it.
    run: Mapped[Execution | None] = relationship(
        primaryjoin="foreign(Order.id) == Execution.id", viewonly=True
    )


class Execution(ExecutionMixin, Base):
    __tablename__ = "workflow_executions"
    entries: Mapped[list[Entry]] = relationship(order_by="Entry.timestamp", viewonly=True)


class Entry(EntryMixin, Base):
    __tablename__ = "workflow_entries"
