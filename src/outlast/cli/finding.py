"""A run by what a person types of its id: all of it, or enough that it can be no other."""

from __future__ import annotations

from difflib import get_close_matches

import click

from outlast.cli.text import neutral
from outlast.errors import InvalidId, NotFound
from outlast.model.ids import SEPARATOR, check_id
from outlast.model.query import RunQuery
from outlast.model.run import Run
from outlast.ports.capabilities import Capability
from outlast.ports.store import Store

LOOKED_AT = 20_000
SHOWN = 10


class Ambiguous(NotFound):
    """Several runs begin like that."""

    def __init__(self, prefix: str, ids: list[str]) -> None:
        super().__init__("run", prefix)
        listed = "\n".join(f"  {id}" for id in ids[:SHOWN])
        more = f"\n  … and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
        self.args = (f"several runs begin with {prefix!r}; type more of the id:\n{listed}{more}",)


async def find_run(store: Store, typed: str, *, certain: bool = False) -> Run:
    """The run whose id is `typed`, or the only one that begins with it.

    With `certain`, for commands that change something, a beginning counts only if all runs could
    be looked at: in a store of very many, the whole id has to be given."""
    try:
        check_id(typed, child=True)
        run = await store.find_one(typed)
    except InvalidId:
        run = None
    if run is not None:
        return run
    if not typed or Capability.FIND not in store.capabilities:
        raise NotFound("run", typed)
    begun, seen, whole = await _beginning_with(store, typed)
    ids = sorted(begun)
    roots = [id for id in ids if not any(id.startswith(other + SEPARATOR) for other in ids)]
    if len(roots) > 1:
        raise Ambiguous(typed, roots)
    if not roots:
        raise _unknown(typed, seen)
    if certain and not whole:
        raise click.UsageError(
            f"{neutral(typed)!r} is the beginning of {roots[0]!r}, but there are too many runs to be "
            "sure that it is the only one: give the whole id"
        )
    return begun[roots[0]]


async def _beginning_with(store: Store, typed: str) -> tuple[dict[str, Run], list[str], bool]:
    begun: dict[str, Run] = {}
    seen: list[str] = []
    async for run in store.find_all(RunQuery(limit=1_000)):
        if len(seen) >= LOOKED_AT:
            return begun, seen, False
        seen.append(run.id)
        if run.id.startswith(typed):
            begun[run.id] = run
    return begun, seen, True


def _unknown(typed: str, seen: list[str]) -> NotFound:
    error = NotFound("run", typed)
    near = get_close_matches(typed, seen[:2_000], 3, cutoff=0.6)
    if near:
        error.args = (f"{error}; did you mean {' or '.join(map(repr, near))}?",)
    else:
        error.args = (f"{error}; `outlast ls` shows which there are",)
    return error
