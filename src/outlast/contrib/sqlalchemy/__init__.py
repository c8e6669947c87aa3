"""Durable state in the database that an application reaches through SQLAlchemy.

::

    engine = create_async_engine("postgresql+asyncpg://…/shop")
    store = store_of(engine)

    async with outlast.App(store, workflows=[order]) as app:
        async with AsyncSession(engine) as session, session.begin():
            session.add(Order(id="o-1"))
            await app.on(session).start(order("o-1"), id="o-1")   # both, or neither

The truth is in outlast's own tables, written by the same SQL as without SQLAlchemy, so that workers on the
plain store and on this one can share runs.
"""

from outlast.contrib.sqlalchemy.models import EntryMixin, ExecutionMixin, make_tables
from outlast.contrib.sqlalchemy.store import store_of
from outlast.model.query import Projection

__all__ = ["EntryMixin", "ExecutionMixin", "Projection", "make_tables", "store_of"]
