"""The API: ``uvicorn --factory examples.shop.api:make_app``, with DATABASE_URL set.

An order and its run are written in one transaction: there is never one without the other.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import selectinload

import outlast
from examples.shop.models import Base, Book, Entry, Execution, Order
from examples.shop.workflows import fulfil
from outlast.contrib.sqlalchemy import store_of
from outlast.errors import NotFound, RunClosed


def make_app(url: str | None = None) -> FastAPI:
    engine = create_async_engine(url or os.environ["DATABASE_URL"])
    sessions = async_sessionmaker(engine, expire_on_commit=False)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:  # or by Alembic: outlast.contrib.sqlalchemy.models
            await connection.run_sync(Base.metadata.create_all)
        async with (
            store_of(sessions, projection=(Execution, Entry)) as store,
            outlast.App(store, workflows=[fulfil], name="shop", lease=5) as workflows,
        ):
            app.state.workflows = workflows
            yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)

    @app.put("/books/{title}")
    async def stock(title: str, number: int) -> dict[str, Any]:
        async with sessions.begin() as session:
            await session.merge(Book(title=title, stock=number))
        return {"title": title, "stock": number}

    @app.post("/orders/{id}", status_code=201)
    async def place(id: str, title: str) -> dict[str, Any]:
        try:
            async with sessions.begin() as session:
                session.add(Order(id=id, title=title))
                await session.flush()
                await app.state.workflows.on(session).start(fulfil(id), id=id)
        except IntegrityError:
            raise HTTPException(409, "there is such an order, or no such book") from None
        return {"id": id}

    @app.post("/orders/{id}/payment", status_code=202)
    async def pay(id: str, by: str) -> dict[str, Any]:
        try:
            await app.state.workflows.get(id).signal("payment", by, dedup="payment")
        except (NotFound, RunClosed) as error:
            raise HTTPException(409, str(error)) from None
        return {"id": id}

    @app.get("/orders/{id}")
    async def show(id: str) -> dict[str, Any]:
        """The order, and what was done for it: one query of ordinary tables."""
        async with sessions() as session:
            wanted = select(Order).where(Order.id == id)
            entries = selectinload(Order.run).selectinload(Execution.entries)
            order = await session.scalar(wanted.options(entries))
        if order is None or order.run is None:
            raise HTTPException(404)
        return {
            "id": order.id,
            "state": order.state,
            "run": order.run.status,
            "done": [entry.step_id for entry in order.run.entries if entry.action == "completed"],
        }

    return app
