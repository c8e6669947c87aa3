"""Finding runs on Redis: what the indexes and the record give back, on a server and on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from msgspec import Raw

from outlast.model import Change, Commit, Run, RunQuery, Status
from outlast.stores.redis import RedisStore
from outlast.testkit.conformance.scenario import begin, done
from tests.stores.redis.servers import again, clustered, single

pytestmark = pytest.mark.server


@pytest.fixture(params=[single, clustered], ids=["single", "cluster"])
async def filled(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    """Thirty runs of two workflows; every third has failed."""
    async with request.param() as store:
        for number in range(30):
            await begin(store, f"r{number:02}", workflow=("ship", "pay")[number % 2])
            if number % 3 == 0:
                failed = Change(status=Status.FAILED, error="late")
                await done(store, Commit(run_id=f"r{number:02}", change=failed))
        yield store


def expected(workflow: int | None, status: Status | None) -> set[str]:
    """Which of them match."""
    numbers = [n for n in range(30) if workflow is None or n % 2 == workflow]
    if status is not None:
        numbers = [n for n in numbers if (n % 3 == 0) == (status is Status.FAILED)]
    return {f"r{n:02}" for n in numbers}


@pytest.mark.proves("D-18")
@pytest.mark.parametrize("workflow", [None, 0, 1])
@pytest.mark.parametrize("status", [None, Status.FAILED, Status.PENDING])
async def test_a_filter_is_applied_before_the_limit(
    filled: RedisStore, workflow: int | None, status: Status | None
) -> None:
    """By workflow, by status, by both or by neither: a page is full as long as enough match."""
    wanted = expected(workflow, status)
    query = RunQuery(
        workflow=None if workflow is None else ("ship", "pay")[workflow],
        status=frozenset() if status is None else frozenset({status}),
        limit=4,
    )
    page = await filled.find(query)
    assert len(page.items) == 4
    assert {run.id for run in page.items} <= wanted
    await filled.delete(page.items[0].id)
    left = {run.id async for run in filled.find_all(query)}
    assert left == wanted - {page.items[0].id}


@pytest.mark.proves("D-19")
async def test_a_search_goes_on_to_the_end(filled: RedisStore) -> None:
    """Page after page, each run once, however small the pages are."""
    found = [run.id async for run in filled.find_all(RunQuery(limit=7))]
    assert len(found) == 30
    assert set(found) == expected(None, None)


@pytest.mark.proves("D-21")
@pytest.mark.parametrize("make", [single, clustered], ids=["single", "cluster"])
async def test_a_record_comes_back_as_it_was(make: Callable[[], RedisStore]) -> None:
    """JSON there and back for another process too, with the status as what it is."""
    input = Raw(b'{"b":[],"a":{"big":12345678901234567890,"f":1.0,"t":"\\u0000"}}')
    async with make() as store:
        record = Run(id="r", workflow="ship", input=input, attributes={"n": 1, "yes": True})
        await done(store, Commit(run_id="r", create=record))
        await done(store, Commit(run_id="r", change=Change(status=Status.HALTED)))
        async with again(store) as other:
            run = await other.get("r")
    assert run.status is Status.HALTED
    assert bytes(run.input or b"") == bytes(input)
    assert run.attributes == {"n": 1, "yes": True}
    assert type(run.attributes["yes"]) is bool
