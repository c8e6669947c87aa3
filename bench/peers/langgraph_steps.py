"""Ten steps in LangGraph, see bench/peers/_clock.py: a graph of ten nodes in a row, each workflow a
thread of its own, `durability="sync"`, which writes the checkpoint of a node before the next begins.
PLACE is the URL of a database in PostgreSQL, for a pool of ten connections, or a file."""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import os
import sys
import uuid
from contextlib import asynccontextmanager
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from bench.peers import _sqlite
from bench.peers._clock import STEPS, race

CONNECTIONS = 10


class State(TypedDict):
    """What the nodes hand on."""

    number: int


async def increase(state: State) -> State:
    """Do next to nothing."""
    return {"number": state["number"] + 1}


def ten_steps() -> StateGraph:
    """Ten nodes in a row."""
    graph = StateGraph(State)
    names = [f"step-{count}" for count in range(STEPS)]
    for name in names:
        graph.add_node(name, increase)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph


@asynccontextmanager
async def saver(place: str):
    """The checkpointer, ready for use."""
    if place.startswith("postgresql:"):
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        kwargs = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        async with AsyncConnectionPool(place, max_size=CONNECTIONS, kwargs=kwargs) as pool:
            found = AsyncPostgresSaver(pool)
            await found.setup()
            yield found
    else:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(place) as found:
            await found.setup()
            yield found


async def main(place: str) -> None:
    """Race."""
    async with saver(place) as checkpointer:
        graph = ten_steps().compile(checkpointer=checkpointer)

        async def once() -> int:
            config = {"configurable": {"thread_id": uuid.uuid4().hex}}
            return (await graph.ainvoke({"number": 1}, config, durability="sync"))["number"]

        on_postgres = place.startswith("postgresql:")
        settings = "PostgreSQL, as it comes" if on_postgres else _sqlite.settings(place)
        await race(once, f'{settings}, durability="sync"')


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    os._exit(0)
