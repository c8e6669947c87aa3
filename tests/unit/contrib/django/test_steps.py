"""A transactional step: rows that the ORM has written and the step's completion are one commit."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from outlast.contrib.django import app, runs
from outlast.contrib.django.threads import HeldTransaction
from outlast.errors import RunFailed
from outlast.model import EventType
from tests.stores.postgres.places import direct
from tests.stores.sqlite_processes.crew import Member
from tests.unit.contrib.django.dying import live
from tests.unit.contrib.django.places import POSTGRES, another, made, use, wipe
from tests.unit.contrib.django.settings import on_postgres
from tests.unit.contrib.django.shop.models import Payment
from tests.unit.contrib.django.shop.workflows import bought, bought_badly, bought_twice, misplaced
from tests.unit.testkit.faults.proxy import Proxy

MOST_PLACES = 30


def paid(alias: str) -> list[int]:
    """What was paid, by anybody."""
    return sorted(Payment.objects.using(alias).values_list("amount", flat=True))


def recorded(run_id: str) -> bool:
    """Whether the outcome of the step is there: in the inbox, or in the history."""
    history = {event.type for event in runs.get(run_id).history()}
    return runs.get(run_id).status().inbox > 0 or EventType.STEP_COMPLETED in history


@pytest.mark.proves("I5", "I9")
@pytest.mark.timeout(300)
def test_a_process_that_is_killed_between_any_two_statements_pays_once(alias: str) -> None:
    """One process after the other buys, and each dies one place later than the one before. Then the
    payment is there if and only if the outcome of the step is. In the end all have paid once."""
    names = ("DJANGO_SETTINGS_MODULE", "DJANGO_TEST_FILE", "OUTLAST_TEST_POSTGRES")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment["DJANGO_TEST_DATABASE"] = alias
    environment["PYTEST_XDIST_WORKER"] = os.environ.get("PYTEST_XDIST_WORKER", "main")
    fates = []
    for doom in range(1, MOST_PLACES):
        member = Member(live, (environment, doom))
        try:
            assert member.pipe.recv() == doom
        except EOFError:
            member.kill()
            fates.append(recorded(f"buy-{doom}"))
            assert (doom in paid(alias)) is fates[-1], f"place {doom}"
            continue
        member.process.join()
        break
    assert fates == sorted(fates), "once it is there, it is there in all later places"
    assert fates.count(False) >= 5, "some have died in the transaction"
    assert fates.count(True) >= 1, "some have died after it"
    with connections[alias].cursor() as cursor:  # the leases of the dead have run out
        cursor.execute("UPDATE outlast_runs SET claimed_until = 0 WHERE owner IS NOT NULL")
    heir = Member(live, (environment, 0))
    assert heir.pipe.recv() == len(fates) + 1
    heir.process.join()
    assert paid(alias) == list(range(1, len(fates) + 2))


async def test_a_step_that_fails_leaves_no_rows(alias: str) -> None:
    """Each attempt is a transaction of its own."""
    async with app() as opened:
        run = await opened.start(bought_twice("o-1"))
        assert await run.result(timeout=30) == 2
        assert await sync_to_async(paid)(alias) == [2]


async def test_a_row_that_breaks_a_constraint_fails_the_step(alias: str) -> None:
    """Also if Django leaves the check to the COMMIT: the run fails, and nobody is in doubt."""
    async with app() as opened:
        run = await opened.start(bought_badly())
        with pytest.raises(RunFailed, match=r"(?i)foreign key"):
            await run.result(timeout=30)


async def test_a_transactional_step_is_a_plain_function(alias: str) -> None:
    """Django's transactions are not for async code: the error says so."""
    async with app() as opened:
        run = await opened.start(misplaced())
        with pytest.raises(RunFailed, match="plain `def`"):
            await run.result(timeout=30)


@pytest.fixture
async def cut() -> AsyncIterator[tuple[str, Proxy]]:
    """The PostgreSQL database through a proxy that cuts connections."""
    alias = await sync_to_async(made)(POSTGRES)
    await sync_to_async(wipe)(alias)
    proxy = Proxy(direct())
    url = await proxy.start()
    try:
        with another("cut", on_postgres(url, connections.settings[alias]["NAME"])):
            yield "cut", proxy
    finally:
        await proxy.stop()


@pytest.mark.server
@pytest.mark.proves("I9")
async def test_a_commit_whose_answer_is_lost_is_found_out(
    cut: tuple[str, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has committed, the worker cannot know: it looks, and does not pay again."""
    alias, proxy = cut
    exits = []
    end = HeldTransaction.end

    async def cut_off(self: HeldTransaction, error: BaseException | None) -> None:
        exits.append(error)
        if len(exits) == 1:
            proxy.lose_answer(b"COMMIT")
        await end(self, error)

    monkeypatch.setattr(HeldTransaction, "end", cut_off)
    with use(alias):
        async with app(lease=1) as opened:
            run = await opened.start(bought("o-1", 7))
            assert await run.result(timeout=60) == 7
    assert await sync_to_async(paid)(POSTGRES) == [7]
    assert exits == [None], "it was tried once"
