"""What a shell offers for an argument: ids of runs, names of workflows, steps of a run. It looks into
the store for a moment; if that is not there or does not answer, nothing is offered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from outlast.cli.place import check_exists, find_place
from outlast.cli.text import neutral
from outlast.errors import OutlastError
from outlast.model.query import RunQuery
from outlast.ports.store import Store
from outlast.urls import resolve

SECONDS = 2.0
OFFERED, LOOKED_AT = 50, 2_000
Offer = Callable[[Store, click.Context, str], Awaitable[list[CompletionItem]]]


class Completed(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions alone
    """Text for which the store has proposals."""

    name = "text"

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            return asyncio.run(self._ask(ctx, incomplete))
        except (OutlastError, click.ClickException, OSError, TimeoutError):
            return []

    async def _ask(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        place = find_place(ctx.params.get("store"))
        check_exists(place)
        async with asyncio.timeout(SECONDS), resolve(place.url) as store:
            return await self._offer(store, ctx, incomplete)


async def _runs(store: Store, _: click.Context, typed: str) -> list[CompletionItem]:
    found: list[CompletionItem] = []
    looked = 0
    async for run in store.find_all(RunQuery(limit=500)):
        looked += 1
        if looked > LOOKED_AT or len(found) == OFFERED:
            break
        # A shell splits at what is not plain, and a terminal obeys what is not printable.
        if run.id.startswith(typed) and neutral(run.id) == run.id and " " not in run.id:
            found.append(CompletionItem(run.id, help=f"{run.workflow} {run.status}"))
    return found


async def _workflows(store: Store, _: click.Context, typed: str) -> list[CompletionItem]:
    names = sorted({workflow for workflow, status in await store.counts() if status})
    return [CompletionItem(name) for name in names if name.startswith(typed)][:OFFERED]


async def _steps(store: Store, ctx: click.Context, typed: str) -> list[CompletionItem]:
    run_id: Any = ctx.params.get("run_id") or ""
    keys = dict.fromkeys(event.step_name for event in await store.history(run_id))
    return [CompletionItem(key) for key in keys if key and key.startswith(typed)][:OFFERED]


RUN, WORKFLOW, STEP = Completed(_runs), Completed(_workflows), Completed(_steps)
